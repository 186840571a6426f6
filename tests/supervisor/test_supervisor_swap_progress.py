"""Progress of a load as people see it: its stages, its log, the time to expect, and a standstill."""

import asyncio
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st
from surroundings.box import Behaviour
from surroundings.house import make_profile

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.event import EngineChanged, SwapChanged
from sparkdash.domain.phrases import past_stages, progress_text
from sparkdash.domain.swap import Step, Swap, SwapPhase
from sparkdash.errors import AdmissionError
from sparkdash.host.processes import proc
from sparkdash.store import Store
from sparkdash.supervisor.state.swap_record import BY_MEMORY, BY_TIME, NEARLY, Estimate, Steps, SwapEta
from sparkdash.units import GIB

STAGES = ("download", "weights", "compile", "kv", "kernels", "graphs", "warmup", "http", "ready")


def steps(**seconds: float) -> Steps:
    return tuple(Step(name=name.replace("_", " "), s=s) for name, s in seconds.items())


def says(course: SwapEta, stage: str, at: float, fraction: float | None = None) -> None:
    course.heard(LoadProgress(stage=stage, fraction=fraction), at)


ONCE = steps(reclaim=2, create=1, start=10, weights=60, weights_done=7, compile=20, warm=5)
SLOWER = steps(reclaim=2, create=1, start=10, weights=90, weights_done=7, compile=20, warm=5)


START = steps(start=10, weights=90, weights_done=1, warm=2)
SILENT = steps(create=1, start=97, warm=2)
DRAIN, STOP, RECLAIM, CREATE, LOAD, WARM = (
    SwapPhase.DRAIN, SwapPhase.STOP, SwapPhase.RECLAIM, SwapPhase.CREATE, SwapPhase.LOAD, SwapPhase.WARM
)  # fmt: skip


def is_at(fraction: Any = ANY, eta_s: Any = ANY, low_s: Any = ANY, high_s: Any = ANY) -> Estimate:
    """An estimate; what is left out may be anything."""
    return Estimate(
        *(pytest.approx(one) if isinstance(one, float) else one for one in (fraction, eta_s, low_s, high_s))
    )


SHARDS = [move for n in range(1, 10) for move in ((n * 10, "weights", n / 14), (n * 10, n * 6))]
COURSES: dict[str, tuple[list[Steps], int | None, list[tuple[Any, ...]]]] = {
    "nothing known is nothing said": ([], None, [(0, LOAD), (5, "weights"), (30, Estimate(None, None, None, None))]),
    "a first load moves with the memory that it takes": (
        [], 100,
        [(0, LOAD), (0, is_at(None)), (1, 10), (1, Estimate(0.1)), (1, 60), (1, Estimate(0.6)), (1, 40),
         (1, Estimate(0.6)), (1, 130), (1, Estimate(BY_MEMORY))],
    ),
    "a first load goes by its log and not by memory that others move": (
        [], 100,
        [(0, LOAD), *SHARDS, (91, is_at(0.54)), (91, 1000), (100, is_at(BY_MEMORY * 10 / 14)),
         (10_000, is_at(BY_MEMORY * 10 / 14)), (10_001, "compile"), (10_002, is_at(BY_MEMORY))],
    ),
    "a first load without a need goes by its log alone": (
        [], None, [(0, LOAD), (5, "weights", 0.5), (30, Estimate(0.5 * BY_MEMORY))]
    ),
    "one earlier load tells what is left and no spread": (
        [ONCE], None,
        [(0, RECLAIM), (0, Estimate(0.0, 105)), (2, CREATE), (3, LOAD), (8, is_at(eta_s=97)), (13, "weights"),
         (43, Estimate(43 / 105, 62, None, None))],
    ),
    "several earlier loads tell the spread": (
        [ONCE, SLOWER, ONCE], None,
        [(0, LOAD), (10, "weights"), (40, is_at(ANY, 62, 62, 92)), (85, is_at(ANY, 32, 32, 47))],
    ),
    "the log's own share corrects what was learned": (
        [ONCE], None,
        [(0, LOAD), (10, "weights", 0.0), (25, "weights", 0.5), (25, is_at(eta_s=32 + 0.5 * 45 + 0.5 * 15)),
         (37, "weights", 0.9), (37, is_at(eta_s=32 + 0.1 * 33 + 0.9 * 3))],
    ),
    "a load that goes as it went is foretold exactly, also between two shards": (
        [ONCE], None,
        [(0, LOAD), (10, "weights", 0.1), (40, "weights", 0.55), (40, is_at(eta_s=62.0)), (70, "weights", 1.0),
         (70, is_at(eta_s=32)), (72, "weights", 1.0), (73, is_at(eta_s=29))],
    ),
    "the drain is no step": (
        [ONCE], None,
        [(0, DRAIN), (100, Estimate(0.0, 105)), (100, STOP), (104, RECLAIM), (104, Estimate(0.0, 105))],
    ),
    "a load that stands still stays one step ahead of its log": (
        [ONCE], None,
        [(0, LOAD), (10, "weights", 0.0), (19, "weights", 0.15), (28, "weights", 0.3),
         (28, is_at((2 + 1 + 10 + 0.3 * 60) / 105)), (628, is_at((2 + 1 + 10 + 0.45 * 60) / 105))],
    ),
    "a load whose log is silent goes by time for a part of its first step": (
        [ONCE], None, [(0, LOAD), (19, is_at((2 + 1 + BY_TIME * 10) / 105))]
    ),
    "a load whose log tells nothing is never said to be almost done": (
        [SILENT], None,
        [(0, LOAD), (48.5, is_at(0.495)), (87.3, is_at(0.883)), (97, is_at(0.883)), (150, is_at(0.883)),
         (700, Estimate(None, 0.0)), (151, WARM), (151, is_at(0.98))],
    ),
    "a long wait before the load says nothing of the load": (
        [ONCE], None,
        [(0, RECLAIM), (300, is_at(None, 0.0)), (300, CREATE), (301, LOAD), (306, is_at((2 + 1 + 5) / 105, 97))],
    ),
    "a load that hangs where earlier ones were through has no share": (
        [START], None,
        [(0, LOAD), (10, "weights", 0.0), (100, "weights", 1.0), (101, "compile"), (105, is_at(101 / 103)),
         (120, is_at(None, 0.0))],
    ),
    "what takes far longer than ever is not foretold": (
        [ONCE, SLOWER], None,
        [(0, LOAD), (10, "weights"), (140, is_at(eta_s=32)), (160, Estimate(None, 0.0, 0.0, 0.0)), (161, "compile"),
         (162, is_at(eta_s=24)), (400, Estimate(None, 0.0, 0.0, 0.0))],
    ),
    "a slow load whose log goes on is": (
        [ONCE, SLOWER], None, [(0, LOAD), (10, "weights", 0.0), (610, "weights", 0.5), (610, is_at(eta_s=332))]
    ),
    "a stage never seen before leaves what comes after the last known one": (
        [ONCE], None, [(0, LOAD), (10, "weights"), (70, "download"), (90, is_at(eta_s=32))]
    ),
}  # fmt: skip
"""Earlier loads, the memory that is needed, and what happens when: a phase, a line of the log with its share, memory
that was taken, or what is told then."""


def follow(course: SwapEta, moves: list[tuple[Any, ...]]) -> None:
    for at, move, *share in moves:
        if isinstance(move, SwapPhase):
            course.enter(move, at)
        elif isinstance(move, str):
            says(course, move, at, *share)
        elif isinstance(move, Estimate):
            assert course.estimate(at) == move, at
        else:
            course.took(move)


@pytest.mark.parametrize("case", COURSES)
def test_a_load_is_foretold_as_it_goes(case: str) -> None:
    past, needs, moves = COURSES[case]
    follow(SwapEta(past, needs=needs), moves)


def test_a_stage_that_comes_back_is_a_step_of_its_own() -> None:
    course = SwapEta()
    shards = [(0, LOAD), (1, "weights", 0.0), (5, "weights", 1.0), (6, "weights", 0.0)]
    follow(course, [*shards, (8, "weights", 1.0), (9, WARM), (10, "compile")])
    record = course.steps(11)
    assert record == steps(start=1, weights=4, weights_done=1, weights_2=2, weights_done_2=1, warm=2)
    again = SwapEta([record])
    follow(again, [*shards, (6, is_at(eta_s=5))])


def test_the_drain_is_not_recorded() -> None:
    course = SwapEta([ONCE])
    follow(course, [(0, DRAIN), (100, STOP), (104, RECLAIM)])
    assert [s.name for s in course.steps(105)] == ["stop", "reclaim"]


moments = st.lists(
    st.tuples(
        st.floats(0, 50),
        st.one_of(
            st.sampled_from(list(SwapPhase)),
            st.tuples(st.sampled_from(STAGES), st.one_of(st.none(), st.floats(0, 1))),
            st.integers(0, 200),
        ),
    ),
    max_size=25,
)
pasts = st.lists(
    st.lists(
        st.builds(Step, name=st.sampled_from([*SwapPhase, "start", *STAGES, "weights done"]), s=st.floats(0, 500)),
        unique_by=lambda step: step.name,
        max_size=8,
    ).map(tuple),
    max_size=4,
)


@given(pasts, moments, st.one_of(st.none(), st.integers(1, 100)))
def test_whatever_happens_it_never_goes_back_and_is_never_full(
    past: list[Steps], what: list, needs: int | None
) -> None:  # type: ignore[type-arg]
    """In any order of phases and lines: monotone, below 1, low <= eta <= high, None where nothing is known."""
    course, now, before = SwapEta(past, needs=needs), 0.0, 0.0
    for pause, move in what:
        now += pause
        if isinstance(move, SwapPhase):
            course.enter(move, now)
        elif isinstance(move, int):
            course.took(move)
        else:
            says(course, move[0], now, move[1])
        found = course.estimate(now)
        assert found.fraction is None or before <= found.fraction <= NEARLY
        before = found.fraction or before
        assert (found.eta_s is None) == (not past)
        if found.low_s is not None and found.high_s is not None and found.eta_s is not None:
            assert 0 <= found.low_s <= found.eta_s <= found.high_s


async def test_progress_is_told_a_few_times_a_second_at_most(house: Any) -> None:
    lines = tuple(f"Loading safetensors checkpoint shards: {n:3d}% Completed | {n}/100" for n in range(1, 101))
    house.runtime.zoo["a"] = Behaviour(lines=lines)
    await house.served(make_profile("a"))
    told = [f.engine.progress for f in house.facts if isinstance(f, EngineChanged) and f.engine.progress]
    assert len({p.detail for p in told}) <= 5
    assert told[-1].fraction is not None
    assert told[-1].fraction > 0.9


async def test_no_stage_of_a_quick_load_is_passed_over(house: Any) -> None:
    lines = (
        "Resolved architecture: X",
        "Model loading took 0.1 GiB and 0.020000 seconds",
        "Available KV cache memory: 1.0 GiB",
    )
    house.runtime.zoo["a"] = Behaviour(lines=lines)
    await house.served(make_profile("a"))
    assert [step.name for step in house.swaps()[-1].steps][-4:] == ["start", "weights done", "kv", "warm"]


async def test_a_start_is_recorded_by_stage(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages add up to what the phases took."""
    monkeypatch.setattr(proc, "reads", lambda pids: dict.fromkeys(pids, (5 * GIB, 3 * GIB)))
    lines = ("Resolved architecture: X", "Starting to load model x", "Directly load AOT compilation from path /x")
    house.runtime.zoo["a"] = Behaviour(load_s=15, lines=lines)
    await house.served(make_profile("a"))
    (swap,) = house.swaps()
    assert (swap.start.stages[0].name, swap.start.stages[-1].name) == ("container", "compile")
    phases = sum(swap.stage_s[phase] for phase in (SwapPhase.CREATE, SwapPhase.LOAD, SwapPhase.WARM))
    assert sum(step.s for step in swap.start.stages) == pytest.approx(phases)
    assert (swap.start.compiled, swap.start.image_id) == (False, "id of image")
    assert (swap.start.disk_bytes, swap.start.cached_bytes) == (3 * GIB, 2 * GIB)


async def test_the_log_is_shown_before_it_tells_a_stage(house: Any) -> None:
    """vLLM imports and resolves for a minute before it loads: its last line stands there, and none once a stage is known."""
    house.runtime.zoo["a"] = Behaviour(load_s=15, lines=("INFO 11-22 16:09:30 [model.py:1] Resolved architecture: X",))
    await house.open(make_profile("a"))
    asking = await house.loading("a")
    await house.passes(1)
    assert house.supervisor.engines["a"].progress == LoadProgress(stage="start", detail="Resolved architecture: X")
    house.runtime.of("a").say("Loading safetensors checkpoint shards:  50% Completed | 1/2")
    house.runtime.of("a").say("a line without a stage")
    await house.clock.drive(asking.granted())
    told = [f.engine.progress for f in house.facts if isinstance(f, EngineChanged) and f.engine.progress]
    assert list(dict.fromkeys(one.stage for one in told)) == ["start", "weights"]
    live = [f.swap for f in house.facts if isinstance(f, SwapChanged) and f.swap.phase is SwapPhase.LOAD]
    assert [past_stages(swap) for swap in live if swap.progress][-1] == "after imports 1.0s"


async def test_a_log_that_could_not_be_followed_is_followed_later(house: Any) -> None:
    """A podman that was slow when the load began must not hide the progress of all of it; no line is taken for new twice."""
    house.runtime.zoo["a"] = Behaviour(
        load_s=15, lines=("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:03<00:03,  3.00s/it]",)
    )
    house.runtime.deaf = True
    await house.open(make_profile("a"))
    asking = await house.loading("a")
    assert shares(house) == set()
    house.runtime.deaf = False
    await house.clock.drive(asking.granted())
    assert shares(house) == {0.5}


def shares(house: Any) -> set[float]:
    progress = [fact.engine.progress for fact in house.facts if isinstance(fact, EngineChanged)]
    return {one.fraction for one in progress if one is not None}


def told(house: Any, target: str) -> list[Swap]:
    """Every state of the swaps to this profile that was published, the last of each left out."""
    swaps = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    return [swap for swap in swaps if swap.target == target and swap.ended_at is None]


async def test_a_first_load_moves_with_its_memory_and_the_second_knows_its_time(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(load_s=40)
    await house.served(make_profile("a"), make_profile("b"), store=Store(lambda _: None), no_progress_s=90)
    first = told(house, "a")
    assert {(swap.eta_s, swap.learned_from) for swap in first} == {(None, 0)}
    shares = [swap.fraction for swap in first if swap.fraction is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 0.8, "all the memory is taken, and it is not ready yet"
    done = house.swaps()[-1]
    assert (done.fraction, done.eta_s) == (1.0, None)
    assert [step.name for step in done.steps] == ["reclaim", "preflight", "create", "start", "weights", "warm"]

    await house.leased("b")
    house.facts.clear()
    await house.leased("a")
    second = told(house, "a")
    assert {swap.learned_from for swap in second} == {1}
    shares = [swap.fraction for swap in second]
    assert shares == sorted(shares)
    assert len(second) > 20, "often enough for a bar"
    took = {step.name: step.s for step in done.steps}
    assert second[0].eta_s == pytest.approx(sum(took.values()))
    begins = {swap.phase: swap.eta_s for swap in reversed(second)}
    assert begins[SwapPhase.LOAD] == pytest.approx(took["start"] + took["weights"] + took["warm"])
    assert begins[SwapPhase.WARM] == pytest.approx(took["warm"])


async def test_a_load_that_stands_still_says_so_and_is_never_almost_done(house: Any) -> None:
    await house.served(make_profile("a"), store=Store(lambda _: None), no_progress_s=600)
    await house.supervisor.stop("a")
    house.facts.clear()
    house.runtime.zoo["a"] = Behaviour(never_ready=True)
    asking = house.ask("a")
    error = await house.clock.drive(asking.refusal())
    assert error.code == "no_progress"
    seen = told(house, "a")
    assert 0.5 < max(swap.fraction or 0.0 for swap in seen) < 0.92
    still = [swap for swap in seen if swap.still_since is not None]
    assert still
    assert all(swap.phase is SwapPhase.LOAD for swap in still)
    began = still[0].still_since
    assert house.clock.now() - began == pytest.approx(600, abs=2)
    assert progress_text(still[-1], began + 130) == "weights 50 % · stalled: no progress for 2m10s, stops in 7m50s"
    assert {round(swap.gives_up_at - swap.still_since) for swap in still} == {600}
    assert still[-1].heard_at is not None
    assert house.swaps()[-1].still_since is None


async def test_a_load_that_stands_still_is_extended_on_request(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(never_ready=True)
    await house.open(make_profile("a"), no_progress_s=600)
    began, asking = house.clock.time, asyncio.ensure_future(house.ask("a").granted())
    with pytest.raises(AdmissionError, match="a has no load that stands still") as refused:
        await house.supervisor.extend_load("a")
    assert (refused.value.code, refused.value.status) == ("not_stalled", 409)
    await house.passes(400)
    await house.supervisor.extend_load("a")
    await house.passes(400)
    await house.supervisor.extend_load("a")
    still = [swap for swap in told(house, "a") if swap.still_since is not None]
    assert len({round(swap.still_since) for swap in still}) == 1
    assert [round(swap.gives_up_at - still[0].still_since, -1) for swap in still] == [600, 1000]
    (error,) = await house.clock.drive(asyncio.gather(asking, return_exceptions=True))
    assert error.code == "no_progress"
    assert house.clock.time - began == pytest.approx(1400, abs=10)


async def test_a_load_that_moves_again_no_longer_stands_still(house: Any) -> None:
    house.runtime.zoo["a"] = Behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("a"), no_progress_s=600)
    asking = await house.loading("a")

    async def until(stands: bool) -> None:
        await house.clock.until(lambda: (told(house, "a")[-1].still_since is not None) is stands)

    await until(stands=True)
    house.runtime.of("a").say("INFO something new at last")
    await until(stands=False)
    await until(stands=True)
    await house.supervisor.cancel()
    await asyncio.gather(asking.granted(), return_exceptions=True)


async def test_another_launch_of_the_same_model_is_an_example(house: Any) -> None:
    base = make_profile("a")
    await house.open(base, make_profile("a/fast", models=base.models, args={"x": 1}), store=Store(lambda _: None))
    await house.leased("a")
    await house.leased("a/fast")
    assert {(swap.similar, swap.learned_from) for swap in told(house, "a/fast")} == {(True, 1)}
    await house.leased("a")
    await house.leased("a/fast")
    assert {(swap.similar, swap.learned_from) for swap in told(house, "a/fast")[-5:]} == {(False, 1)}
