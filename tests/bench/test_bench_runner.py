"""A run over simulated engines: its order, its checks, and that it goes on where it was stopped."""

import asyncio
import itertools
import platform
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import serving

from sparkdash.bench import run_folder
from sparkdash.bench.measure import arm_launcher, voids
from sparkdash.bench.measure.arm_launcher import LaunchedArm
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.measure.runner import Runner, RunStep, RunTimeLeft, settled
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.measure.voids import BoxReading
from sparkdash.bench.plan import run_plan
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.results import Provenance
from sparkdash.bench.run import Arm, CellKey, Kind, LaunchSlot, Mode
from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.event import Measuring
from sparkdash.domain.metric import Gpu, Memory, NodeSample, Sample
from sparkdash.domain.node import LOCAL, NodeFacts, NodeState, NodeStatus
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.errors import AdmissionError
from sparkdash.sim import prompt as prompt_module
from tests.shared.alternating import alternating

CELLS = st.lists(
    st.tuples(st.integers(0, 200_000), st.integers(1, 4096), st.integers(1, 64), st.integers(1, 20)),
    min_size=1,
    max_size=40,
)


def worked_off(whole: float, left: float, works: Sequence[float]) -> RunTimeLeft:
    """The pace at the end of these works. Each of its values goes into what the daemon is sent, which refuses negative
    times, and shares outside of 0..1."""
    ticks = itertools.count()
    pace = RunTimeLeft(lambda: float(next(ticks)))
    pace.begin(whole=whole, left=left)
    pace.launched(3.0)
    told = {"run": "r", "doing": "measuring", "arm": "A", "launch": 1, "launches": 2, "done": 0, "cells": 1}
    for work in works:
        pace.worked(work)
        Measuring.model_validate({**told, "share": pace.share, "left_s": pace.left_s(0)})
    assert pace.left_s(0) is not None
    return pace


def cost(context: int, output: int, streams: int, reps: int) -> float:
    return run_plan.token_cost(CellKey(suite="s", context=context, output=output, concurrency=streams), reps)


@given(CELLS, st.data())
def test_the_remaining_time_is_never_negative_however_the_sums_round(
    cells: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    """A run of any cells, measured in another order than they were added up in, from the start or from a gap."""
    works = [cost(*cell) for cell in cells]
    left = works[data.draw(st.integers(0, len(works) - 1)) :]
    assert worked_off(sum(works), sum(left), data.draw(st.permutations(left))).share > 0.999_999


def test_the_default_cells_of_the_concurrency_suite_end_at_zero() -> None:
    """1, 2 and 4 requests at once over four launches: their square roots left -1.3e-14 s, and the report was lost."""
    works = [cost(512, 256, streams, 3) for _ in range(4) for streams in (1, 2, 4)]
    worked_off(sum(works), sum(works), works[::-1])


SUITE = Suite(suite="tiny", version="1", about="", cells=(CellGroup(context=(0, 256), output=(24, 40)),))
ARMS = (Arm(name="A", profile="slow"), Arm(name="B", profile="fast"))


class Sims:
    """A stand whose engines are simulated ones in this process; every launch is a new one."""

    def __init__(self, stack: AsyncExitStack, **acceptance: tuple[float, ...]) -> None:
        self.launched: list[str] = []
        self.looks: list[BoxReading] = []
        """Readings that the box shows, first to last; then none."""
        self.fingerprint = "f"
        self._acceptance = acceptance
        self._stack = stack

    async def launch(self, arm: Arm, _show: Callable[[Any], None]) -> LaunchedArm:
        speed = SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=4000)
        chances = self._acceptance.get(arm.name, ())
        spec = SimSpec(speeds=(speed,), acceptance=chances, time_scale=50)
        profile = Profile(name=arm.profile, engine=EngineKind.SIM, context=4096, sim=spec)
        _, url = await self._stack.enter_async_context(serving(profile))
        wire = await self._stack.enter_async_context(BenchClient(url))
        self.launched.append(arm.name)
        measured = MeasuredEngine(client=wire, kind=EngineKind.SIM, model=arm.profile, engine_url=url)
        return LaunchedArm(
            measured, Provenance(profile=arm.profile, fingerprint=self.fingerprint, engine="sim"), self._look
        )

    async def _look(self) -> BoxReading:
        return self.looks.pop(0) if self.looks else BoxReading()


@pytest.fixture
async def sims() -> AsyncIterator[Sims]:
    async with AsyncExitStack() as stack:
        yield Sims(stack, B=(1.0, 1.0))


def begun(tmp_path: Path, *cells: CellGroup, mode: Mode = Mode.SCREEN, reps: int = 2) -> Path:
    """A run in turns, A B A B A B; of the usual cells, or of these."""
    run = run_plan.new_run(SUITE.replace(cells=cells or SUITE.cells), ARMS, mode, reps=reps)
    return run_folder.create_run_folder(run.replace(order=alternating(("A", "B"), mode)), tmp_path)


async def stopped(place: Path, launcher: Sims, samples: int) -> None:
    """Run, and be cancelled after so many samples."""
    seen = itertools.count(1)

    def stop(step: RunStep) -> None:
        if step.sample is not None and next(seen) == samples:
            asyncio.current_task().cancel()  # type: ignore[union-attr]

    with pytest.raises(asyncio.CancelledError):
        await runner(place, launcher, stop).run()


def runner(place: Path, launcher: Sims, show: Callable[[RunStep], None] = lambda _: None) -> Runner:
    return Runner(place, launcher, show, lag_limit_ms=1e9)


def test_each_run_draws_its_own_order_and_asks_the_same_question() -> None:
    """So a run that was stopped is found by the same command, though a new one would have another order."""
    runs = [run_plan.new_run(SUITE, ARMS, Mode.STANDARD, reps=2) for _ in range(40)]
    assert len({tuple(slot.arm for slot in run.order) for run in runs}) > 4
    assert all(run_plan.is_same_question(runs[0], run) for run in runs)
    four = runs[0].replace(order=runs[0].order[:4])
    assert not run_plan.is_same_question(runs[0], four)


async def test_every_launch_is_a_new_engine_and_every_cell_is_measured(tmp_path: Path, sims: Sims) -> None:
    """In the run's order; exact prompts, forced lengths, and the engine's own counts."""
    results = await runner(begun(tmp_path, mode=Mode.STANDARD), sims).run()
    assert sims.launched == ["A", "B", "A", "B", "A", "B"]
    assert results.gaps() == ()
    assert results.run.ended_at is not None
    assert len(results.samples) == 6 * 4 * 2
    assert {one.void for one in results.samples} == {None}
    for one in results.samples:
        assert (one.n, one.finish_reason, one.cached_tokens) == (one.cell.output, "length", 0)
        assert one.cell.context in (0, one.prompt_tokens)
    pairs = {arm: sorted((one.cell.output, one.prompt_id) for one in results.samples if one.arm == arm) for arm in "AB"}
    assert pairs["A"] == pairs["B"]
    lengths = {cell.arm: cell.drafts and 1 + (cell.accepted_tokens or 0) / cell.drafts for cell in results.cells}
    assert lengths["A"] is None
    assert lengths["B"] == pytest.approx(3.0)
    assert all(cell.accepted_at == ((cell.drafts,) * 2 if cell.arm == "B" else ()) for cell in results.cells)


async def test_a_run_keeps_the_order_that_it_was_recorded_with(tmp_path: Path, sims: Sims) -> None:
    run = run_plan.new_run(SUITE.replace(cells=(CellGroup(output=(24,)),)), ARMS, Mode.STANDARD, reps=1)
    order = tuple(LaunchSlot(arm=arm, block=place // 2) for place, arm in enumerate("ABBA"))
    results = await runner(run_folder.create_run_folder(run.replace(order=order), tmp_path), sims).run()
    assert sims.launched == ["A", "B", "B", "A"]
    assert results.gaps() == ()


async def test_a_run_that_was_stopped_measures_nothing_twice(tmp_path: Path, sims: Sims) -> None:
    """Cancelled in the middle of the second launch: finished cells stay, that launch is started anew for the rest."""
    place = begun(tmp_path, mode=Mode.STANDARD)
    await stopped(place, sims, samples=12)  # in the second cell of the second launch
    before = run_folder.read_results(place)
    kept = {(cell.launch, cell.key) for cell in before.cells}
    assert 4 <= len(kept) < 24

    after = await runner(place, sims).run()
    assert after.gaps() == ()
    assert sims.launched == ["A", "B", "B", "A", "B", "A", "B"]
    counted = [(cell.launch, cell.key) for cell in after.cells]
    assert len(counted) == len(set(counted)) == 24
    assert [one for one in after.samples if (one.launch, one.cell) in kept] == list(before.samples)
    again = len(sims.launched)
    assert (await runner(place, sims).run()).gaps() == ()
    assert len(sims.launched) == again


async def test_a_profile_that_was_edited_meanwhile_is_refused(tmp_path: Path, sims: Sims) -> None:
    place = begun(tmp_path, mode=Mode.STANDARD)
    await stopped(place, sims, samples=1)
    sims.fingerprint = "other"
    with pytest.raises(AdmissionError, match="was edited") as refused:
        await runner(place, sims).run()
    assert refused.value.code == "profile_changed"


async def test_a_template_that_begins_all_prompts_alike_makes_none_void(
    tmp_path: Path, sims: Sims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Templates such as that of gpt-oss say who the model is; the cache knows that from the second prompt on."""
    templated = prompt_module._template
    monkeypatch.setattr(
        prompt_module, "_template", lambda *of: "You are a large language model. " * 12 + templated(*of)
    )
    results = await runner(begun(tmp_path), sims).run()
    assert results.gaps() == ()
    assert {one.void for one in results.samples} == {None}
    assert max(one.cached_tokens or 0 for one in results.samples) > 60


async def test_a_request_that_does_not_count_is_tried_again(
    tmp_path: Path, sims: Sims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The void one is kept with its reason; the next try has another head, which no prefix cache knows."""
    judged, asked = voids.request_void_reason, itertools.count()
    monkeypatch.setattr(
        voids, "request_void_reason", lambda *of, **how: judged(*of, **how) or "late" * (not next(asked))
    )
    results = await runner(begun(tmp_path, CellGroup(context=(256,), output=(24,)), reps=1), sims).run()
    assert results.gaps() == ()
    assert [(one.arm, one.void) for one in results.samples] == [("A", "late"), ("A", None), ("B", None)]
    assert {one.prompt_id for one in results.samples} == {results.samples[0].prompt_id}


@pytest.mark.parametrize(("answer", "reason"), [
    ({}, None), ({"cached_tokens": 40}, "40 prompt tokens came from the prefix cache"),
    ({"n": 23}, "23 of 24 tokens (length)"), ({"finish_reason": "stop"}, "finish reason stop"),
    ({"prompt_tokens": 270}, "the prompt had 270 tokens, 256 were meant"),
    ({"lag_ms": 7.7}, "the client was 7.7 ms late"), ({"error": "HTTP 500: lost"}, "error: HTTP 500: lost"),
])  # fmt: skip
def test_why_an_answer_does_not_count(answer: dict[str, Any], reason: str | None) -> None:
    told = {"n": 24, "last_ns": 1, "prompt_tokens": 256, "finish_reason": "length", **answer}
    key = CellKey(suite="s", context=256, output=24)
    found = voids.request_void_reason(StreamedAnswer(0, **told), key, exact=True, template=20, lag_limit_ms=5)
    assert found == reason


async def test_a_cell_during_which_the_clock_fell_is_void_and_missing(tmp_path: Path, sims: Sims) -> None:
    place = begun(tmp_path, CellGroup(output=(24,)))
    late = 4e9
    sims.looks = [BoxReading(), BoxReading(), BoxReading(at=late, clock_mhz=2400), BoxReading(at=late, clock_mhz=820)]
    results = await runner(place, sims).run()
    assert [cell.void for cell in results.cells] == ["clock fell to 820 MHz", None]
    assert {one.void for one in results.samples if one.arm == "A"} == {"clock fell to 820 MHz"}
    assert [gap.arm for gap in results.gaps()] == ["A"]
    assert (await runner(place, sims).run()).gaps() == ()


@pytest.mark.parametrize(
    ("engines", "clock", "swap"),
    [
        ([(LOCAL,)], 208.0, 5),
        ([("spark2",)], 2400.0, 7),
        ([(LOCAL,), ("spark2",)], 2400.0, 12),  # a replica may rest
        ([(LOCAL, "spark2")], 208.0, 12),  # the slowest rank holds up all
        ([("gone",)], None, 0),
    ],
)
def test_what_is_read_beside_a_cell_is_of_the_boxes_that_its_engines_run_on(
    engines: list[tuple[str, ...]], clock: float | None, swap: int
) -> None:
    """A box that idles while an engine of another one is measured voids no cell."""
    idle, busy = (Gpu(sm_clock_mhz=mhz, temperature_c=40.0) for mhz in (240.0, 2400.0))
    here, there = (Memory(total=9, available=9, free=9, swap_used=used) for used in (5, 7))
    idle = idle.replace(sm_clock_mhz=208.0)
    sample = Sample(at=1.0, gpu=idle, memory=here, nodes={"spark2": NodeSample(at=1.0, memory=there, gpu=busy)})
    found = arm_launcher.read_boxes(sample, engines)
    assert (found.clock_mhz, found.swap_used) == (clock, swap)


HERE, THERE = (
    {"driver": driver, "kernel": kernel, "clock_mhz": mhz, "available_bytes": free}
    for driver, kernel, mhz, free in (("580.1", platform.release(), 208.0, 5), ("590.2", "6.17-there", 2400.0, 7))
)


@pytest.mark.parametrize(("nodes", "box"), [((LOCAL, "spark2"), HERE), (("spark2",), THERE)])
async def test_a_launch_is_recorded_with_the_box_that_its_engine_serves_on(
    nodes: tuple[str, ...], box: dict[str, Any]
) -> None:
    gpus = [Gpu(driver=each["driver"], sm_clock_mhz=each["clock_mhz"]) for each in (HERE, THERE)]
    free = [Memory(total=9, available=each["available_bytes"], free=1) for each in (HERE, THERE)]
    there = NodeSample(at=1.0, memory=free[1], gpu=gpus[1])
    facts = NodeFacts(hostname="b", arch="aarch64", home="/h", uid=0, driver="590.2", kernel="6.17-there")
    state = NodeState(name="spark2", status=NodeStatus.REACHABLE, since=0.0, facts=facts)
    daemon = DaemonInfo(version="1", host=platform.node(), pid=1, started_at=0.0, runtime="process", url="http://x")
    sample = Sample(at=1.0, gpu=gpus[0], memory=free[0], nodes={"spark2": there})
    world = Snapshot(seq=1, at=1.0, daemon=daemon, sample=sample, nodes={"spark2": state})
    profile = Profile(name="p", engine=EngineKind.SIM, sim=SimSpec())
    engine = Engine(profile="p", kind=EngineKind.SIM, state=EngineState.READY, since=0.0, fingerprint="f", nodes=nodes)
    async with BenchClient("http://127.0.0.1:9") as wire:
        measured = MeasuredEngine(client=wire, kind=EngineKind.SIM, model="p", engine_url=None)
        found = await arm_launcher.profile_provenance(profile, engine, world, measured, ())
    assert {name: getattr(found, name) for name in box} == box


async def test_requests_at_once_count_together(tmp_path: Path, sims: Sims) -> None:
    """Each repetition has as many streams as the cell says, with prompts of their own."""
    cell = CellGroup(context=(256,), output=(24,), concurrency=(4,))
    results = await runner(begun(tmp_path, cell), sims).run()
    arm = [one for one in results.samples if one.arm == "A"]
    assert sorted((one.rep, one.stream) for one in arm) == [(rep, stream) for rep in (0, 1) for stream in range(4)]
    assert len({one.prompt_id for one in arm}) == 8


async def test_warm_cells_repeat_and_prefix_cells_share(tmp_path: Path, sims: Sims) -> None:
    warm = CellGroup(context=(1024,), output=(24,), warm=(True,))
    results = await runner(begun(tmp_path, warm, warm.replace(kind=Kind.PREFIX)), sims).run()
    assert results.gaps() == ()
    assert all((one.cached_tokens or 0) > 700 for one in results.samples)
    prefixes = [cell for cell in results.cells if cell.key.kind is Kind.PREFIX]
    rates = [cell.prefix_queries and (cell.prefix_hits or 0) / cell.prefix_queries for cell in prefixes]
    assert all(rate is not None and rate > 0.7 for rate in rates)


def test_settling() -> None:
    assert settled([None], 40.0)
    assert settled([42.0], 40.0)
    assert not settled([60.0], 40.0)
    assert not settled([60.0], None)
    assert settled([60.0, 59.8, 59.5, 59.4], 40.0)
    assert not settled([70.0, 66.0, 63.0, 61.0], 40.0)


async def test_answers_are_kept_where_they_are_judged(tmp_path: Path, sims: Sims) -> None:
    results = await runner(begun(tmp_path, CellGroup(output=(60,), kind=Kind.MATH, reps=5)), sims).run()
    assert results.gaps() == ()
    asked = [one for one in results.samples if one.arm == "A"]
    assert [one.prompt_id for one in asked] == [f"math2 {number}" for number in range(5)]
    assert all(one.text for one in results.samples)


async def test_a_cell_that_the_engine_refuses_is_void_at_once(tmp_path: Path, sims: Sims) -> None:
    results = await runner(begun(tmp_path, CellGroup(context=(0, 8192), output=(24,)), reps=1), sims).run()
    void = [cell for cell in results.cells if cell.void]
    assert [cell.key.context for cell in void] == [8192, 8192]
    assert all("maximum context length is 4096" in (cell.void or "") for cell in void)
    assert {gap.cell.context for gap in results.gaps()} == {8192}
    assert results.run.ended_at is None
