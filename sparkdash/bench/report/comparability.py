"""Rules that refuse misleading comparisons, within a run and between runs.

Rule 1: a difference in the work (suite, thinking, temperature, tokenizer, simulated or real) refuses the
comparison: the figures remain, no difference between them is shown.
Rule 2: a difference in the box or the build (driver, kernel, image under one name) is flagged. It may be the subject
of the comparison, and a reader must know of it.
Rule 3: an unknown value is neither a difference nor proof of equality. Where it matters, it is flagged. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from sparkdash.bench.report.report import ArmReport, ComparisonFlag, Report
from sparkdash.bench.results import LaunchRecord, Provenance, Results

Get = Callable[[Provenance], object]

WORK: tuple[tuple[str, Get], ...] = (
    ("the thinking flag", lambda one: one.thinking),
    ("the temperature", lambda one: one.temperature),
    ("the tokenizer", lambda one: one.tokenizer_sha256),
    ("simulated or real", lambda one: None if one.engine is None else one.engine == "sim"),
)
"""Properties of the work asked of an engine. A difference makes it another measurement."""

SETUP: tuple[tuple[str, Get], ...] = (
    ("the driver", lambda one: one.driver),
    ("the kernel", lambda one: one.kernel),
    ("the KV cache's type", lambda one: one.kv_dtype),
)

BUILD: tuple[tuple[str, Get], ...] = (
    ("the image", lambda one: one.image_digest),
    ("the engine's version", lambda one: one.engine_version),
    ("the model's revision", lambda one: one.model_revision),
    ("the profile's fingerprint", lambda one: one.fingerprint),
)
"""Properties of one arm that may not change from launch to launch."""


def flags_within_run(results: Results) -> tuple[ComparisonFlag, ...]:
    """Return what keeps a run's arms from being compared with its baseline, and what a reader must know."""
    run = results.run
    launches = {arm.name: [one for one in results.launches if one.arm == arm.name] for arm in run.arms}
    base = launches[run.baseline]
    flags: list[ComparisonFlag] = []
    for arm in run.arms:
        mine = launches[arm.name]
        flags += _unsteady(arm.name, mine)
        if arm.name != run.baseline and base and mine:
            flags += _against(arm.name, run.baseline, mine[-1].provenance, base[-1].provenance)
    return tuple(flags)


def refused_arms(flags: Iterable[ComparisonFlag]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flag.arm for flag in flags if flag.refuses))


def flags_between_runs(ours: Report, theirs: Report) -> tuple[ComparisonFlag, ...]:
    """Return the same flags for two runs, for their common arms."""
    return tuple(flag for arm, other in paired_arms(ours, theirs) for flag in _pair(arm, other))


def paired_arms(ours: Report, theirs: Report) -> tuple[tuple[ArmReport, ArmReport], ...]:
    """Return the arms that measured the same in both runs: equal profile and parameters."""
    there = {_who(theirs, arm): arm for arm in theirs.arms}
    return tuple((arm, there[_who(ours, arm)]) for arm in ours.arms if _who(ours, arm) in there)


def _who(report: Report, arm: ArmReport) -> tuple[str, tuple[tuple[str, str], ...]]:
    return arm.profile, tuple(sorted(report.run.arm(arm.name).parameters.items()))


def _pair(arm: ArmReport, other: ArmReport) -> Iterator[ComparisonFlag]:
    if arm.provenance is not None and other.provenance is not None:
        yield from _against(arm.name, other.name, arm.provenance, other.provenance)
        yield from _told(False, arm.name, other.name, BUILD, arm.provenance, other.provenance)


def _against(arm: str, base: str, mine: Provenance, theirs: Provenance) -> Iterator[ComparisonFlag]:
    yield from _told(True, arm, base, WORK, mine, theirs)
    yield from _told(False, arm, base, SETUP, mine, theirs)


def _told(
    refuses: bool, arm: str, base: str, what: Sequence[tuple[str, Get]], mine: Provenance, theirs: Provenance
) -> Iterator[ComparisonFlag]:
    for name, get in what:
        here, there = get(mine), get(theirs)
        if here == there:
            continue
        if here is None or there is None:
            silent = arm if here is None else base
            text = f"{name[0].upper()}{name[1:]} of {silent} was not told, so it may differ from the other's."
            yield ComparisonFlag(refuses=False, arm=arm, text=text)
        else:
            text = f"{name[0].upper()}{name[1:]} differs: {_word(here)} in {arm}, {_word(there)} in {base}."
            yield ComparisonFlag(refuses=refuses, arm=arm, text=text)


def _unsteady(arm: str, launches: Sequence[LaunchRecord]) -> Iterator[ComparisonFlag]:
    for name, get in (*WORK, *SETUP, *BUILD):
        seen = {get(one.provenance) for one in launches} - {None}
        if len(seen) > 1:
            words = ", ".join(sorted(_word(one) for one in seen))
            yield ComparisonFlag(
                refuses=True, arm=arm, text=f"{name[0].upper()}{name[1:]} changed between launches: {words}."
            )


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)[:24]
