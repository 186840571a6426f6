"""Texts and documents of a measurement: the plan, the progress bar, the finished run."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from string import ascii_uppercase
from textwrap import wrap

from sparkdash.api.answers import BenchPlan, PlannedArm, SuiteLine
from sparkdash.bench.judge.judgement import LEAST_PROMPTS
from sparkdash.bench.judge.metrics import BenchMetric, main_metric
from sparkdash.bench.measure.box_lease import LAPSE_S
from sparkdash.bench.measure.runner import RunStep
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.plan.suites import Suite
from sparkdash.bench.report import assemble
from sparkdash.bench.report.blocks import short_cell_name
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind, Mode, Run
from sparkdash.cli.output import LiveLine, print_note, terminal_width
from sparkdash.domain.event import Measuring
from sparkdash.domain.state import Snapshot
from sparkdash.errors import ProfileError
from sparkdash.units import counted, duration

BAR = 20


def plan_document(
    results: Results,
    suite: suites.Suite,
    speeds: Mapping[str, run_plan.KnownSpeeds],
    expected_s: float | None,
    world: Snapshot,
) -> BenchPlan:
    run, gaps = results.run, results.gaps()
    known = {arm.name: speeds.get(arm.name, run_plan.KnownSpeeds()) for arm in run.arms}
    return BenchPlan(
        suite=suite.suite,
        about=suite.about,
        mode=run.mode.value,
        arms=tuple(
            PlannedArm(name=arm.name, impossible=arm.impossible, **known[arm.name].model_dump()) for arm in run.arms
        ),
        order=tuple(run.order[index].arm for index in run_plan.launches_left(results)),
        cells=len(run.cells),
        gaps=len(gaps),
        expected_s=expected_s,
        note=_few_prompts_note(run, world),
        resumes=run.id if results.launches else None,
        stops=tuple(name for name, engine in world.engines.items() if engine.state != "failed") if world else (),
        simulated=run.simulated,
        suites=_suites(run.mode),
    )


def _suites(mode: Mode) -> tuple[SuiteLine, ...]:
    found = []
    for name in suites.suite_files():
        try:
            suite = suites.load_suite(name)
        except ProfileError:  # the owner's own, with a mistake that `--suite` tells
            continue
        found.append(SuiteLine(name=name, about=suite.about, cells=len(suite.planned(mode))))
    return tuple(found)


def arm_letters(names: Iterable[str]) -> dict[str, str]:
    """Assign each name a mark: A to Z, then AA, AB and so on."""
    marks = ("".join(each) for size in itertools.count(1) for each in itertools.product(ascii_uppercase, repeat=size))
    return dict(zip(names, marks, strict=False))


def print_plan(
    results: Results,
    suite: Suite,
    speeds: Mapping[str, run_plan.KnownSpeeds],
    expected_s: float | None,
    world: Snapshot,
) -> None:
    run, gaps = results.run, results.gaps()
    print_wrapped(
        f"{suite.suite} v{suite.version} ({suite.hash[:10]}): {counted(len(run.cells), 'cell')}. {suite.about}"
    )
    letters = arm_letters(arm.name for arm in run.arms)
    for arm in run.arms:
        is_baseline = arm.name == run.baseline and len(run.arms) > 1
        note = f"  (cannot run: {arm.impossible})" if arm.impossible else "  (the baseline)" if is_baseline else ""
        print_wrapped(f"  {letters[arm.name]}  {arm.name}{note}")
    launches = run_plan.launches_left(results)
    order = " ".join(letters[run.order[index].arm] for index in launches)
    print_wrapped(f"  {order}: {_launch_count(len(launches))}; {counted(len(gaps), 'cell')} to measure")
    if run.mode is not Mode.SCREEN and len(set(order.split())) > 1 and not results.launches:
        print_wrapped("  Each new run draws its own order, so no drift of the box keeps time with it.")
    if few := _few_prompts_note(run, world):
        print_wrapped(f"  {few}")
    if stopped := [name for name, engine in world.engines.items() if engine.state != "failed"]:
        print_wrapped(f"The run stops {', '.join(stopped)}; what ran before comes back at the end.")
    sources = {one.source for one in speeds.values() if one.source}
    print_wrapped(_expected_text(expected_s, sources, estimated=any(one.estimated for one in speeds.values())))


FEW_PROMPTS = 5


def _few_prompts_note(run: Run, world: Snapshot) -> str | None:
    """Say what a comparison in cells of few prompts alone can show: nothing, or of speculation little."""
    known = [world.profile(arm.profile) for arm in run.arms]
    speculates = len({one.speculation is None for one in known if one is not None}) > 1
    cells = [cell for cell in run.cells if cell.key.kind is Kind.SPEED]
    most = max((cell.reps * cell.key.concurrency for cell in cells), default=FEW_PROMPTS + 1)
    if run.mode is Mode.SCREEN or len(run.arms) < 2 or most > FEW_PROMPTS:
        return None
    if most < LEAST_PROMPTS and main_metric(run.suite) is BenchMetric.DECODE:
        return (
            f"A first look: {counted(most, 'prompt')} in a cell cannot show which is better. A larger suite, such as "
            "seeds, can."
        )
    if not speculates:
        return None
    return (
        "Speculation gains more on some prompts than on others: with five prompts in a cell a true +5 % is shown in "
        "one of six cells (careful: one of three), with twenty in half of them (nine of ten). Add `--reps 20 --mode "
        "careful`."
    )


def _expected_text(expected_s: float | None, sources: set[str], *, estimated: bool) -> str:
    if not expected_s:
        return "The expected time is known after the first launch."
    about = "~" if estimated else "about "
    mark = "; ~ is an estimate, which the first launch corrects" if estimated else ""
    return f"Expected time: {about}{duration(expected_s)}, from decode rates {' and '.join(sorted(sources))}{mark}."


def _launch_count(count: int) -> str:
    return f"{count} {'launch of a new engine' if count == 1 else 'launches, each of a new engine'}"


def print_wrapped(text: str) -> None:
    plain = text.lstrip()
    indent = " " * (len(text) - len(plain))
    for line in wrap(
        plain, terminal_width() - 1, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    ):
        print_note(line)


def uncounted_text(results: Results) -> str:
    told = (assemble.void_text(assemble.count_voids(results)), assemble.damage_text(len(results.damaged)))
    return "; ".join(text for text in told if text)


def print_uncounted(results: Results) -> None:
    if said := uncounted_text(results):
        print_wrapped(f"{said}.")


def print_waiting(why: str) -> None:
    print_wrapped(f"{why} Waiting for it, {LAPSE_S:.0f} s at most.")


class RunProgress:
    """Progress of a run: on one terminal line, and as the daemon shows it on its screens."""

    def __init__(self, run: Run) -> None:
        self.measuring: Measuring | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._run = run
        self._letters = arm_letters(arm.name for arm in run.arms)
        self.line = LiveLine()
        self._rate = ""

    def show(self, step: RunStep) -> None:
        self._draw(step)
        before = self.measuring
        self.measuring = now = Measuring(
            run=self._run.id, doing=step.doing, arm=step.arm, launch=step.launch + 1, launches=step.launches,
            cell=cell_name(step.cell) if step.cell and step.doing == "measuring" else None,
            done=step.done, cells=step.cells, share=step.share, left_s=step.left_s,
        )  # fmt: skip
        if before is None or (before.launch, before.doing, before.cell) != (now.launch, now.doing, now.cell):
            self.on_change()

    def _draw(self, step: RunStep) -> None:
        if step.sample is not None:
            rate = step.sample.decode_tok_s
            self._rate = f"void: {step.sample.void}" if step.sample.void else f"{rate:.1f} tok/s" if rate else ""
        where = f"launch {step.launch + 1}/{step.launches} {self._letters.get(step.arm, '')}"
        what, filled = _doing(step), round(step.share * BAR)
        left = f"  about {duration(step.left_s)} left" if step.left_s else ""
        bar = f"[{'#' * filled}{'-' * (BAR - filled)}] {100 * step.share:.0f} %"
        self.line.draw(f"{bar}{left}  {where}  {what}  {self._rate}", f"{where}: {what}")  # cut from the right


def _doing(step: RunStep) -> str:
    if step.doing == "launching" and step.world and (swap := step.world.swap):
        return f"{swap.phase.value} {swap.target or ''}".strip()
    return cell_name(step.cell) if step.doing == "measuring" and step.cell else step.doing


def cell_name(key: CellKey) -> str:
    return "math" if key.kind is Kind.MATH else short_cell_name(key, {})
