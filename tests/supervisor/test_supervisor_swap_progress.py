"""Progress of a load as people see it: its stages, its log, the time to expect, and a standstill."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.event import EngineChanged, SwapChanged
from sparkdash.domain.phrases import progress_text
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.errors import AdmissionError
from sparkdash.host.processes import proc
from sparkdash.store import Store
from sparkdash.units import GIB


async def test_progress_is_told_a_few_times_a_second_at_most(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Hundreds of progress-bar lines at once become a handful of events, and the last one is not lost."""
    lines = tuple(f"Loading safetensors checkpoint shards: {n:3d}% Completed | {n}/100" for n in range(1, 101))
    house.runtime.zoo["a"] = behaviour(lines=lines)
    await house.open(make_profile("a"))
    await house.leased("a")
    told = [f.engine.progress for f in house.facts if isinstance(f, EngineChanged) and f.engine.progress]
    assert len({p.detail for p in told}) <= 5
    assert told[-1].fraction is not None
    assert told[-1].fraction > 0.9


async def test_no_stage_of_a_quick_load_is_passed_over(house: Any, make_profile: Any, behaviour: Any) -> None:
    """Each is a step of what is learned of the load, however little of it there is to see."""
    lines = (
        "Resolved architecture: X",
        "Model loading took 0.1 GiB and 0.020000 seconds",
        "Available KV cache memory: 1.0 GiB",
    )
    house.runtime.zoo["a"] = behaviour(lines=lines)
    await house.open(make_profile("a"))
    await house.leased("a")
    assert [step.name for step in house.swaps()[-1].steps][-4:] == ["start", "weights done", "kv", "warm"]


async def test_the_log_is_shown_before_it_tells_a_stage(house: Any, make_profile: Any, behaviour: Any) -> None:
    """vLLM imports and resolves for a minute before it loads: its last line stands there, and none once a stage is known."""
    house.runtime.zoo["a"] = behaviour(load_s=15, lines=("INFO 11-22 16:09:30 [model.py:1] Resolved architecture: X",))
    await house.open(make_profile("a"))
    asking = house.ask("a")
    await house.loads("a")
    await house.clock.drive(house.clock.sleep(1))
    assert house.supervisor.engines["a"].progress == LoadProgress(stage="start", detail="Resolved architecture: X")
    house.runtime.of("a").say("Loading safetensors checkpoint shards:  50% Completed | 1/2")
    house.runtime.of("a").say("a line without a stage")
    await house.clock.drive(asking.granted())
    told = [f.engine.progress for f in house.facts if isinstance(f, EngineChanged) and f.engine.progress]
    assert list(dict.fromkeys(one.stage for one in told)) == ["start", "weights"]
    await asking.leave()


async def test_a_log_that_could_not_be_followed_is_followed_later(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """A podman that was slow when the load began must not hide the progress of all of it; no line is taken for new twice."""
    house.runtime.zoo["a"] = behaviour(
        load_s=15, lines=("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:03<00:03,  3.00s/it]",)
    )
    house.runtime.deaf = True
    await house.open(make_profile("a"))
    asking = house.ask("a")
    await house.loads("a")
    assert shares(house) == set()
    house.runtime.deaf = False
    await house.clock.drive(asking.granted())
    assert shares(house) == {0.5}
    await asking.leave()


def shares(house: Any) -> set[float]:
    """Every progress of a load that was published."""
    progress = [fact.engine.progress for fact in house.facts if isinstance(fact, EngineChanged)]
    return {one.fraction for one in progress if one is not None}


def told(house: Any, target: str) -> list[Swap]:
    """Every state of the swaps to this profile that was published, the last of each left out."""
    swaps = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    return [swap for swap in swaps if swap.target == target and swap.ended_at is None]


async def test_a_first_load_moves_with_its_memory_and_the_second_knows_its_time(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """The share never falls and is full only when done; what is left is told from the second load on."""
    house.runtime.zoo["a"] = behaviour(load_s=40)
    await house.open(make_profile("a"), make_profile("b"), store=Store(lambda _: None), no_progress_s=90)
    await house.leased("a")
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


async def test_a_load_that_stands_still_says_so_and_is_never_almost_done(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """It came up once and now it does not: for ten minutes it is told for how long nothing moved."""
    await house.open(make_profile("a"), store=Store(lambda _: None), no_progress_s=600)
    await house.leased("a")
    await house.supervisor.stop("a")
    house.facts.clear()
    house.runtime.zoo["a"] = behaviour(never_ready=True)
    asking = house.ask("a")
    (error,) = await house.clock.drive(asyncio.gather(asking.granted(), return_exceptions=True))
    assert error.code == "no_progress"
    seen = told(house, "a")
    assert 0.5 < max(swap.fraction or 0.0 for swap in seen) < 0.92
    still = [swap for swap in seen if swap.still_since is not None]
    assert still
    assert all(swap.phase is SwapPhase.LOAD for swap in still)
    began = still[0].still_since
    assert house.clock.now() - began == pytest.approx(600, abs=2)
    assert progress_text(still[-1], began + 130) == "weights 50 % · stalled: no progress for 2m10s, ended in 7m50s"
    assert {round(swap.gives_up_at - swap.still_since) for swap in still} == {600}
    assert still[-1].heard_at is not None
    assert house.swaps()[-1].still_since is None


async def test_a_load_that_stands_still_is_extended_on_request(house: Any, make_profile: Any, behaviour: Any) -> None:
    """The limit begins anew, as often as it is asked; the standstill goes on being told from where it began."""
    house.runtime.zoo["a"] = behaviour(never_ready=True)
    await house.open(make_profile("a"), no_progress_s=600)
    began, asking = house.clock.time, asyncio.ensure_future(house.ask("a").granted())
    with pytest.raises(AdmissionError, match="a has no load that stands still") as refused:
        await house.supervisor.extend_load("a")
    assert (refused.value.code, refused.value.status) == ("not_stalled", 409)
    await house.clock.drive(house.clock.sleep(400))
    await house.supervisor.extend_load("a")
    await house.clock.drive(house.clock.sleep(400))
    await house.supervisor.extend_load("a")
    still = [swap for swap in told(house, "a") if swap.still_since is not None]
    assert len({round(swap.still_since) for swap in still}) == 1
    assert [round(swap.gives_up_at - still[0].still_since, -1) for swap in still] == [600, 1000]
    (error,) = await house.clock.drive(asyncio.gather(asking, return_exceptions=True))
    assert error.code == "no_progress"
    assert house.clock.time - began == pytest.approx(1400, abs=10)


async def test_memory_that_others_move_is_no_progress_of_a_stuck_load(
    house: Any, make_profile: Any, behaviour: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody copies files and starts programs, and the load's own processes do nothing: it is given up in time."""
    monkeypatch.setattr(proc, "taken_in", lambda pids: dict.fromkeys(pids, GIB))
    monkeypatch.setattr(proc, "tells_reads", lambda _: True)
    house.runtime.zoo["a"] = behaviour(never_ready=True)
    await house.open(make_profile("a"), no_progress_s=60)
    taken = house.reader.memory

    def moved_by_others() -> Any:
        memory, step = taken(), int(house.clock.time % 10_000) * GIB // 50
        return memory.model_copy(update={"available": memory.available - step, "page_cache": GIB + step})

    house.reader.memory = moved_by_others
    began, asking = house.clock.time, house.ask("a")
    (error,) = await house.clock.drive(asyncio.gather(asking.granted(), return_exceptions=True))
    assert error.code == "no_progress"
    assert house.clock.time - began < 120
    assert any(swap.still_since is not None for swap in told(house, "a"))


async def test_what_the_box_caches_counts_where_nobody_may_ask_what_the_load_reads(
    house: Any, make_profile: Any, behaviour: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's process that downloads: its memory stays as it is, and the page cache grows."""
    monkeypatch.setattr(proc, "taken_in", lambda pids: dict.fromkeys(pids, GIB))
    monkeypatch.setattr(proc, "tells_reads", lambda _: False)
    house.runtime.zoo["a"] = behaviour(load_s=200, lines=())
    await house.open(make_profile("a", gib=0), no_progress_s=20)
    asking, taken = house.ask("a"), house.reader.memory

    def caching() -> Any:
        return taken().model_copy(update={"page_cache": int(house.clock.time % 10_000) * GIB // 50})

    house.reader.memory = caching
    lease = await house.clock.drive(asking.granted())
    assert lease.engine.load_s >= 200
    await asking.leave()


async def test_a_load_that_moves_again_no_longer_stands_still(house: Any, make_profile: Any, behaviour: Any) -> None:
    """A new line of its log ends it; a line that repeats does not."""
    house.runtime.zoo["a"] = behaviour(never_ready=True, heartbeat=True)
    await house.open(make_profile("a"), no_progress_s=600)
    asking = house.ask("a")
    await house.loads("a")

    async def until(stands: bool) -> None:
        while (told(house, "a")[-1].still_since is not None) is not stands:
            house.clock.step()
            await house.clock.rest()

    await until(stands=True)
    house.runtime.of("a").say("INFO something new at last")
    await until(stands=False)
    await until(stands=True)
    await house.supervisor.cancel()
    await asyncio.gather(asking.granted(), return_exceptions=True)


async def test_another_launch_of_the_same_model_is_an_example(house: Any, make_profile: Any) -> None:
    """A variant that was never loaded goes by its base, and says so."""
    base = make_profile("a")
    await house.open(base, make_profile("a/fast", models=base.models, args={"x": 1}), store=Store(lambda _: None))
    await house.leased("a")
    await house.leased("a/fast")
    assert {(swap.similar, swap.learned_from) for swap in told(house, "a/fast")} == {(True, 1)}
    await house.leased("a")
    await house.leased("a/fast")
    assert {(swap.similar, swap.learned_from) for swap in told(house, "a/fast")[-5:]} == {(False, 1)}
