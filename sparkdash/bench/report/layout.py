"""How the arms of a run stand in its tables: builds by modes of speculation, under which titles. Pure.

Owns: the shape of a layout and the one that is derived from a run itself. Must not know: figures.
A layout may name arms that a run does not have; their cells then say what would fill them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from sparkdash.bench.report import cell_names
from sparkdash.bench.report.report import ArmReport, Report
from sparkdash.domain.base import Frozen

PLAIN = "Vanilla"
"""The mode without speculation, in the words of the published tables."""


class SpeculationMode(Frozen):
    """One column of the comparison."""

    name: str
    """As a column is headed: `+EAGLE3`."""
    title: str
    """As a table is titled: `+EAGLE3 NST=1`."""
    letter: str
    """As the math column is headed: `E`."""


class Build(Frozen):
    """One row of the comparison: an engine's build, with its arm in each mode."""

    name: str
    """As a row is headed: `turbo dual`."""
    title: str
    """As its tables are titled: `turbo Dual-Arch`."""
    about: tuple[str, ...] = ()
    """One for each of the layout's columns: kernel, conversion."""
    arms: dict[str, str]
    """Mode's name -> the profile or the arm that measures it."""
    tables: tuple[str, ...] | None = None
    """The modes that have tables of their own; None: all of `arms`."""
    combined: str | None = None
    """All modes in one table under this title, with math as a column."""

    def shown(self, modes: Iterable[SpeculationMode]) -> tuple[tuple[SpeculationMode, str], ...]:
        """The modes with tables of their own, each with its arm."""
        return tuple(
            (mode, self.arms[mode.name])
            for mode in modes
            if mode.name in self.arms and (self.tables is None or mode.name in self.tables)
        )


class BuildGroup(Frozen):
    """Builds under one heading."""

    title: str
    facts: tuple[str, ...] = ()
    builds: tuple[Build, ...] = Field(min_length=1)


class LayoutTitles(Frozen):
    """Titles of the parts that published documents call otherwise; all else of a report is in English."""

    comparison: str = "Comparison"
    variant: str = "Variant"
    starts: str = "Start commands"


class Layout(Frozen):
    """A whole report's order and words."""

    title: str
    facts: tuple[str, ...] = ()
    modes: tuple[SpeculationMode, ...]
    about: tuple[str, ...] = ()
    """Heads of the builds' own columns in the comparison."""
    groups: tuple[BuildGroup, ...]
    metric: str = "decode"
    """The figure that the tables show."""
    warm: bool = False
    """With columns for what was measured on a warm prefix cache."""
    math: bool = False
    """With lines for the right answers also where the run asked no questions."""
    own_delta: bool = False
    """With a row of deltas for the baseline's own build."""
    recipe: bool = False
    """With a table of steps and gains as well."""
    words: LayoutTitles = LayoutTitles()

    @property
    def builds(self) -> tuple[Build, ...]:
        """Of all groups, in order."""
        return tuple(build for group in self.groups for build in group.builds)


def derive_layout(report: Report, metric: str = "decode") -> Layout:
    """From the run alone: arms that speculate stand beside the arm whose name theirs begins with."""
    modes = {arm.name: _mode(arm) for arm in report.arms}
    builds: dict[str, dict[str, str]] = {}
    plain = [arm.name for arm in report.arms if modes[arm.name].name == PLAIN]
    for arm in report.arms:
        home = _home(arm.name, plain) if modes[arm.name].name != PLAIN else arm.name
        taken = builds.setdefault(home, {})
        if modes[arm.name].name in taken:  # two of a mode: a build of its own
            taken = builds.setdefault(arm.name, {})
        taken[modes[arm.name].name] = arm.name
    used = {mode.name: mode for mode in modes.values()}
    return Layout(
        title=f"{report.run.suite} on {report.run.host.name or 'this box'}",
        modes=tuple(sorted(used.values(), key=lambda mode: mode.name != PLAIN)),
        groups=tuple(
            BuildGroup(title=name, builds=(Build(name=name, title=name, arms=arms),)) for name, arms in builds.items()
        ),
        metric=metric,
        warm=True,
        own_delta=True,
        recipe=len(report.arms) > 1,
    )


def _mode(arm: ArmReport) -> SpeculationMode:
    """By what the launch speculated with: `eagle3 k=1` is +EAGLE3 NST=1."""
    method, count = cell_names.parse_speculation(arm.provenance.speculation if arm.provenance else None)
    if not method:
        return SpeculationMode(name=PLAIN, title=PLAIN, letter="V")
    name = f"+{method.upper()}={count}" if count else f"+{method.upper()}"
    return SpeculationMode(
        name=name,
        title=f"+{method.upper()} NST={count}" if count else name,
        letter=f"{method[:1].upper()}{count or ''}",
    )


def _home(name: str, plain: list[str]) -> str:
    """The plain arm whose name begins this one's; the arm itself where there is none."""
    return max((one for one in plain if name.startswith(one)), key=len, default=name)
