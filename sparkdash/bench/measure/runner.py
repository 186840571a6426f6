"""Runner of a whole run, launch by launch, from its first gap to its last.

Rule 1: the file is the state. What it lacks is measured; what it has is not measured again.
Rule 2: an interrupted launch is started anew. Figures of two engines never mix within a cell, which is atomic.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sparkdash.bench import run_folder
from sparkdash.bench.measure.arm_launcher import ArmLauncher, LaunchedArm
from sparkdash.bench.measure.cell_measurement import CellContext, measure_cell
from sparkdash.bench.measure.voids import BoxReading
from sparkdash.bench.plan import run_plan
from sparkdash.bench.plan.run_plan import cell_order
from sparkdash.bench.plan.suites import Chat
from sparkdash.bench.results import Gap, LaunchRecord, RequestSample, Results
from sparkdash.bench.run import Arm, CellKey, Run
from sparkdash.bench.run_folder import Journal
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError


class RunTimeLeft:
    """Counts the work that is done and the time that it took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._whole = self._left = self._seen = 0.0
        self._measuring_s = 0.0
        self._since = clock()
        self._launch_s: list[float] = []

    def begin(self, *, whole: float, left: float) -> None:
        self._whole, self._left = whole, left

    def launched(self, seconds: float) -> None:
        self._launch_s.append(seconds)
        self._since = self._clock()

    def worked(self, work: float) -> None:
        now = self._clock()
        self._measuring_s += now - self._since
        self._since = now
        self._left = max(0.0, self._left - work)
        self._seen += work

    @property
    def share(self) -> float:
        return min(1.0, max(0.0, 1.0 - self._left / self._whole)) if self._whole else 1.0

    def left_s(self, launches: int) -> float | None:
        """Seconds to the end with `launches` more starts; None before the first measured cell."""
        if not self._seen or not self._launch_s:
            return None
        start_s = sum(self._launch_s) / len(self._launch_s)
        return self._left / self._seen * self._measuring_s + max(0, launches) * start_s


SETTLE_S = 120.0
"""Longest wait for a warm GPU; then it is measured as it is."""
SETTLE_PAUSE_S = 2.0
SETTLE_C = 1.0
"""A temperature that moves less than this within SETTLE_LOOKS looks has settled."""
SETTLE_LOOKS = 4
WARMER_C = 3.0
"""Degrees by which the box may be warmer than before the first launch."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Progress of a run, for the screen."""

    doing: str
    launch: int
    launches: int
    arm: str
    cell: CellKey | None = None
    sample: RequestSample | None = None
    done: int = 0
    """Measured cells of all launches, of `cells`."""
    cells: int = 0
    share: float = 0.0
    """Share of all work, by tokens, 0..1."""
    left_s: float | None = None
    world: Snapshot | None = None


class Runner:
    """Measures one run in its folder. `show` is called often and must be quick."""

    def __init__(
        self,
        place: Path,
        launcher: ArmLauncher,
        show: Callable[[RunStep], None],
        *,
        lag_limit_ms: float = 5.0,
        chats: Sequence[Chat] = (),
    ) -> None:
        self._place = place
        self._launcher = launcher
        self._show = show
        self._lag_limit_ms = lag_limit_ms
        self._chats = chats
        self._fastest_mhz: float | None = None
        self._cool_c: float | None = None
        self._step = RunStep("launching", 0, 0, "")
        self._pace = RunTimeLeft(time.monotonic)

    @property
    def left_s(self) -> float | None:
        return self._step.left_s

    async def run(self) -> Results:
        """Measure every gap and return the results. Ends early only by cancellation or an error; call again to resume.

        Raises:
            SparkdashError: an arm does not come up, the folder cannot be written, or another process writes it.
        """
        with Journal(self._place) as journal:
            results = run_folder.read_results(self._place)
            run = results.run
            self._fastest_mhz = max((one.clock_mhz for one in results.cells if one.clock_mhz is not None), default=None)
            gaps = results.gaps()
            self._count_work(run, gaps)
            known = {one.arm: one.provenance.fingerprint for one in results.launches}
            for index in run_plan.launches_left(results):
                mine = [gap for gap in gaps if gap.launch == index]
                arm = run.arm(run.order[index].arm)
                launched = await self._launch(journal, run, arm, index, known)
                await self._measure(journal, run, launched, mine)
        return self._ended()

    def _count_work(self, run: Run, gaps: Sequence[Gap]) -> None:
        planned = [cell for index in range(len(run.order)) for cell in run.planned(index)]
        whole = sum(run_plan.token_cost(cell.key, cell.reps) for cell in planned)
        self._pace.begin(whole=whole, left=run_plan.token_cost_left(gaps))
        self._step = replace(self._step, done=len(planned) - len(gaps), cells=len(planned))

    async def _launch(
        self, journal: Journal, run: Run, arm: Arm, index: int, known: dict[str, str | None]
    ) -> LaunchedArm:
        self._tell("launching", launch=index, launches=len(run.order), arm=arm.name, cell=None, sample=None)
        began = time.monotonic()
        launched = await self._launcher.launch(arm, lambda world: self._tell(world=world))
        self._pace.launched(time.monotonic() - began)
        refuse_edited(arm, known, launched.provenance.fingerprint)
        journal.append(
            LaunchRecord(
                arm=arm.name, index=index, block=run.order[index].block, started_at=datetime.now(UTC),
                provenance=launched.provenance,
            )
        )  # fmt: skip
        journal.sync()
        await self._settle(launched)
        return launched

    async def _measure(self, journal: Journal, run: Run, launched: LaunchedArm, mine: Sequence[Gap]) -> None:
        counter = await launched.measured.counter()
        index = mine[0].launch
        salt = f"{run.id}-{index}-{time.time_ns()}"
        cell_context = CellContext(
            measured=launched.measured,
            counter=counter,
            seed=run.seed,
            arm=mine[0].arm,
            launch=index,
            salt=salt,
            look=launched.look,
            lag_limit_ms=self._lag_limit_ms,
            chats=self._chats,
            fastest_mhz=self._fastest_mhz,
        )
        missing = {gap.cell: gap.reps for gap in mine}
        for cell in cell_order(run.planned(index), run.seed, run.order[index].block):
            if reps := missing.get(cell.key):
                self._tell("measuring", cell=cell.key)
                closed = await measure_cell(cell_context, cell.key, reps, journal.append, self._sampled)
                journal.append(closed)
                journal.sync()
                self._pace.worked(run_plan.token_cost(cell.key, len(reps)))
                self._tell(done=self._step.done + (closed.void is None), sample=None)
        self._fastest_mhz = cell_context.fastest_mhz

    async def _settle(self, launched: LaunchedArm) -> None:
        """Wait until the GPU is about as cool as before the first launch or stops changing.

        Returns at once without a sensor.
        """
        seen: list[BoxReading] = []
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            seen.append(await launched.look())
            if settled([look.temperature_c for look in seen], self._cool_c):
                break
            self._tell("settling")
            await asyncio.sleep(SETTLE_PAUSE_S)
        if self._cool_c is None:
            self._cool_c = seen[-1].temperature_c

    def _ended(self) -> Results:
        results = run_folder.read_results(self._place)
        if not results.gaps() and results.run.ended_at is None:
            run_folder.save_run(self._place, results.run.replace(ended_at=datetime.now(UTC)))
            results = run_folder.read_results(self._place)
        return results

    def _sampled(self, sample: RequestSample) -> None:
        self._tell("measuring", sample=sample)

    def _tell(self, doing: str | None = None, **changes: object) -> None:
        step = replace(self._step, doing=doing or self._step.doing, **changes)  # type: ignore[arg-type]
        self._step = replace(step, share=self._pace.share, left_s=self._pace.left_s(step.launches - step.launch - 1))
        self._show(self._step)


def settled(temperatures: Sequence[float | None], cool_c: float | None) -> bool:
    """Whether measuring may begin: the GPU has no sensor, is about as cool as `cool_c`, or has stopped changing."""
    if temperatures[-1] is None:
        return True
    if cool_c is not None and temperatures[-1] <= cool_c + WARMER_C:
        return True
    last = [one for one in temperatures[-SETTLE_LOOKS:] if one is not None]
    return len(last) == SETTLE_LOOKS and max(last) - min(last) <= SETTLE_C


def refuse_edited(arm: Arm, known: dict[str, str | None], fingerprint: str | None) -> None:
    """Raise AdmissionError when the profile changed since this run's earlier launches."""
    before = known.setdefault(arm.name, fingerprint)
    if before != fingerprint:
        raise AdmissionError(
            f"{arm.profile} was edited since this run began (fingerprint {before}, now {fingerprint}). Its figures "
            "would mix two profiles.",
            code="profile_changed",
            status=409,
            hint="Begin a new run with --fresh.",
        )
