"""Users by admission: they join until the engine queues or preempts, by its own figures, on simulated engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sparkdash.bench import run_folder
from sparkdash.bench.measure import user_admission
from sparkdash.bench.measure.arm_launcher import LaunchedArm
from sparkdash.bench.measure.held_request import has_text
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.measure.runner import Runner
from sparkdash.bench.measure.voids import BoxReading
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.plan.suites import CellGroup, Suite
from sparkdash.bench.records import LaunchRecord, Provenance, RequestSample, UserAdmission
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Kind, Mode
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.sim_spec import SimSpec, SimSpeed
from sparkdash.errors import ProfileError
from sparkdash.sim.process.engine_process import serving

SUITE = Suite(
    suite="tiny", version="1", about="", cells=(CellGroup(context=(4096,), output=(512,), kind=Kind.USERS, reps=1),)
)
ARMS = (Arm(name="A", profile="small"), Arm(name="B", profile="large"))


class Caches:
    """Launches simulated engines whose caches have the given numbers of tokens."""

    def __init__(self, context: int = 8192, **tokens: int) -> None:
        self._tokens = tokens
        self._context = context
        self.stack = AsyncExitStack()

    async def launch(self, arm: Arm, _show: Callable[[Any], None]) -> LaunchedArm:
        speed = SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=20000)
        spec = SimSpec(speeds=(speed,), time_scale=20, kv_tokens=self._tokens[arm.profile])
        profile = Profile(name=arm.profile, engine=EngineKind.SIM, context=self._context, sim=spec)
        _, url = await self.stack.enter_async_context(serving(profile))
        wire = await self.stack.enter_async_context(BenchClient(url))
        measured = MeasuredEngine(client=wire, kind=EngineKind.SIM, model=arm.profile, engine_url=url)
        told = Provenance(profile=arm.profile, engine="sim", kv_tokens=await measured.kv_tokens())
        return LaunchedArm(measured, told, _look, simulated=True)


async def _look() -> BoxReading:
    return BoxReading()


@pytest.fixture
async def caches() -> AsyncIterator[Callable[..., Caches]]:
    async with AsyncExitStack() as stack:

        def made(**given: int) -> Caches:
            found = Caches(**given)
            stack.push_async_exit(found.stack)
            return found

        yield made


async def measured(place: Path, launcher: Caches) -> Results:
    return await Runner(place, launcher, lambda _: None, lag_limit_ms=1e9).run()


def begun(tmp_path: Path, mode: Mode = Mode.SCREEN) -> Path:
    return run_folder.create_run_folder(run_plan.new_run(SUITE, ARMS, mode), tmp_path)


async def test_as_many_users_are_admitted_as_the_cache_holds(
    tmp_path: Path, caches: Callable[..., Caches], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three and seven whole contexts; the engine's own queue or preemptions end the ramp, and the figures say so."""
    monkeypatch.setattr(user_admission, "LOOK_S", 0.02)
    results = await measured(begun(tmp_path), caches(small=3 * 4096 + 1000, large=7 * 4096 + 1000))
    assert results.gaps() == ()
    report = assemble_report(results)
    assert [(one.arm, one.admitted, one.computed, one.context) for one in report.users] == [
        ("A", 3, 3, 4096), ("B", 7, 7, 4096),
    ]  # fmt: skip
    for one in report.users:
        assert one.ramps[0].stopped_by in ("queued", "preempted")
        assert (one.ramps[0].kv_used or 0) > 0.8
    page = render_markdown(report_page(report))
    assert "| Build | KV cache | 256K concurrent users | By admission |" in page
    assert "computed for that length: 7" in page
    assert "4,096 tokens each, then the engine" in page


async def test_an_engine_with_a_shorter_limit_is_measured_at_its_longest(
    tmp_path: Path, caches: Callable[..., Caches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_admission, "LOOK_S", 0.02)
    results = await measured(begun(tmp_path), caches(context=2048, small=3 * 2048 + 500, large=4 * 2048 + 500))
    found = {one.arm: one.ramps[0] for one in assemble_report(results).users}
    assert {arm: (one.admitted, one.context) for arm, one in found.items()} == {"A": (3, 2048), "B": (4, 2048)}


async def test_the_engine_runs_nothing_after_the_ramp_and_a_resumed_run_measures_only_what_lacks(
    tmp_path: Path, caches: Callable[..., Caches], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed after its first launch: the file is cut there, and the rest is measured once."""
    monkeypatch.setattr(user_admission, "LOOK_S", 0.02)
    launcher = caches(small=2 * 4096 + 1000, large=2 * 4096 + 1000)
    place = begun(tmp_path)
    whole = await measured(place, launcher)
    lines = (place / "records.jsonl").read_bytes().splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if n and b'"record":"launch"' in line)
    (place / "records.jsonl").write_bytes(b"".join(lines[: second + 2])[:-7])
    again = await measured(place, launcher)
    assert again.gaps() == ()
    assert [(one.arm, one.launch) for one in again.samples] == [("A", 0), ("B", 1)]
    assert [one.admission.admitted for one in again.samples if one.admission] == [2, 2]
    assert whole.samples[0] == again.samples[0]


async def test_an_engine_that_does_not_tell_its_queue_is_not_measured(
    tmp_path: Path, caches: Callable[..., Caches], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_self: MeasuredEngine) -> None:
        return None

    launcher = caches(small=10_000, large=10_000)
    monkeypatch.setattr(MeasuredEngine, "counters", nothing)
    results = await measured(begun(tmp_path), launcher)
    assert {one.void for one in results.samples} == {user_admission.UNTOLD}
    assert len(results.gaps()) == 2


async def test_a_ramp_ends_at_the_most_that_is_tried(
    tmp_path: Path, caches: Callable[..., Caches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_admission, "LOOK_S", 0.02)
    monkeypatch.setattr(user_admission, "MOST_USERS", 2)
    results = await measured(begun(tmp_path), caches(small=100_000, large=100_000))
    assert [(one.admission.admitted, one.admission.stopped_by) for one in results.samples if one.admission] == [
        (2, "most"), (2, "most"),
    ]  # fmt: skip


def test_the_published_suite_asks_for_whole_contexts_of_256k() -> None:
    (cell,) = suites.load_suite("users").planned(Mode.STANDARD)
    assert (cell.key.kind, cell.key.context, cell.reps) == (Kind.USERS, 262_144, 1)


def test_a_users_cell_with_a_fixed_number_of_users_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "suite: mine\nversion: 1\nabout: x\ncells:\n  - {context: 4096, output: 8, kind: users, concurrency: 2}\n"
    )
    with pytest.raises(ProfileError, match="their number is measured"):
        suites.load_suite(str(file))


def test_launches_that_differ_show_their_median_and_each_number() -> None:
    run = run_plan.new_run(SUITE, (ARMS[0],), Mode.STANDARD)
    key = CellKey(suite="tiny", context=4096, output=512, kind=Kind.USERS)
    samples = tuple(
        RequestSample(
            cell=key, arm="A", launch=launch, rep=0, prompt_id="users", t0_ns=0,
            admission=UserAdmission(context=4096, prompt=3568, admitted=count, stopped_by="queued", kv_used=0.97),
        )
        for launch, count in enumerate((5, 6))
    )  # fmt: skip
    launches = (LaunchRecord(arm="A", index=0, block=0, started_at=run.created_at),)
    page = render_markdown(report_page(assemble_report(Results(run=run, launches=launches, samples=samples))))
    assert "5.5¹" in page
    assert "4,096 tokens each, then the engine queued the next at 97% of the cache; by launch: 5, 6" in page


@pytest.mark.parametrize(
    ("line", "has"),
    [
        (b'data: {"choices":[{"delta":{"content":"a"}}]}', True),
        (b'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}', True),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}', False),
        (b'data: {"choices":[]}', False),
        (b"data: [DONE]", False),
        (b"data: 7", False),
    ],
)
def test_a_first_token_is_one_that_carries_text(line: bytes, has: bool) -> None:
    assert has_text(line) is has
