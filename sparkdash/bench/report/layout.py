"""Layout of a run's arms in its tables: builds by modes of speculation, with titles.

A layout may name arms that a run lacks; their cells then show how to fill them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, ValidationError

from sparkdash.bench.judge.metrics import main_metric
from sparkdash.bench.report.report import Report
from sparkdash.catalog import yaml12
from sparkdash.domain.base import Frozen
from sparkdash.errors import AdmissionError
from sparkdash.paths import read_small_text

SHIPPED = Path(__file__).parent / "layouts"
ONLY = "run"
"""Name of the one mode of a layout that the run determines."""


class SpeculationMode(Frozen):
    """Column of the comparison."""

    name: str
    """Column head: `+EAGLE3`."""
    title: str
    """Table title: `+EAGLE3 NST=1`."""
    letter: str
    """Letter in the math column's head: `E`."""


class Build(Frozen):
    """Row of the comparison: a build of an engine, with its arm in each mode."""

    name: str
    """Row head: `turbo dual`."""
    title: str
    """Title of its tables: `turbo Dual-Arch`."""
    about: tuple[str, ...] = ()
    """Values of the layout's own columns, such as kernel and conversion."""
    arms: dict[str, str]
    """Profile or arm by the mode that it measures."""
    tables: tuple[str, ...] | None = None
    """Modes with tables of their own; None: all of `arms`."""
    combined: str | None = None
    """Title of one table for all modes, with math as a column."""

    def shown(self, modes: Iterable[SpeculationMode]) -> tuple[tuple[SpeculationMode, str], ...]:
        """Return the modes with tables of their own, each with its arm."""
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
    """Titles that published documents translate or rename."""

    comparison: str = "Comparison"
    variant: str = "Variant"
    starts: str = "Start commands"


class TableLayout(Frozen):
    """Table of a published document: its columns and rows are templates (filled_tables.py)."""

    title: str
    given: dict[str, str] = {}
    """Texts that all rows share: `profile`, `suite` (its measurement), `cell`, `over` (what gains are against)."""
    above: tuple[str, ...] = ()
    columns: dict[str, str] = {}
    """Template by column head."""
    rows: tuple[dict[str, str], ...] = ()
    below: tuple[str, ...] = ()
    blank: str = ""
    """Text of a cell that is still to be measured."""


class Layout(Frozen):
    """Order and titles of a whole report."""

    title: str
    facts: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    """Suites whose runs are merged where no run is named; empty: the newest run's."""
    tables: tuple[TableLayout, ...] = ()
    """Tables in the place of everything but the report's head; empty: the whole report."""
    modes: tuple[SpeculationMode, ...] = ()
    """Without modes and groups the run determines both."""
    about: tuple[str, ...] = ()
    """Heads of the builds' own columns in the comparison."""
    groups: tuple[BuildGroup, ...] = ()
    metric: str = "decode"
    warm: bool = False
    """Adds columns measured on a warm prefix cache."""
    math: bool = False
    """Adds lines for right answers even where the run asked no questions."""
    recipe: bool = False
    """Has one table of all arms over the baseline in the place of builds by modes."""
    words: LayoutTitles = LayoutTitles()

    @property
    def named(self) -> frozenset[str]:
        """Profiles and arms of its tables; empty: those of the run."""
        rows = (table.given | row for table in self.tables for row in table.rows)
        names = {row[key] for row in rows for key in ("profile", "over") if key in row}
        return frozenset(names.union(*(build.arms.values() for build in self.builds)))

    @property
    def builds(self) -> tuple[Build, ...]:
        return tuple(build for group in self.groups for build in group.builds)


def derive_layout(report: Report, metric: str | None = None) -> Layout:
    """Derive a layout from the run: each arm has tables of its own, and a row in the table over the baseline."""
    builds = (Build(name=arm.name, title=arm.name, arms={ONLY: arm.name}) for arm in report.arms)
    return Layout(
        title=f"{_compared(report)}: {report.run.suite} on {report.run.host.name or 'this box'}",
        modes=(SpeculationMode(name=ONLY, title=ONLY, letter=""),),
        groups=tuple(BuildGroup(title=build.name, builds=(build,)) for build in builds),
        metric=metric or main_metric(report.run.suite),
        warm=True,
        recipe=True,
    )


def _compared(report: Report) -> str:
    """Return `B against A`, `C, B and 3 others against A`, or the one arm."""
    base = report.run.baseline
    others = [arm.name for arm in report.arms if arm.name != base]
    if len(others) > 3:
        others = [*others[:2], f"{len(others) - 2} others"]
    named = " and ".join(filter(None, (", ".join(others[:-1]), *others[-1:])))
    return f"{named} against {base}" if others else base


def filled_layout(layout: Layout, report: Report) -> Layout:
    """Return the layout with the run's own arms where it names none."""
    if layout.groups:
        return layout
    own = derive_layout(report, layout.metric)
    return layout.replace(modes=own.modes, groups=own.groups)


def shipped_layouts() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in SHIPPED.glob("*.yaml")))


def load_layout(name: str) -> Layout:
    """Load a layout by its name, or from a YAML file.

    Raises:
        AdmissionError: `layout_not_found`, `layout_invalid`.
    """
    if name in shipped_layouts():
        return _read((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"), name)
    try:
        return _read(read_small_text(Path(name)), name)
    except (OSError, UnicodeDecodeError):
        raise AdmissionError(
            f"There is no layout {name}.",
            code="layout_not_found",
            status=404,
            hint=f"There are {', '.join(shipped_layouts())}; or give a YAML file of the same shape.",
        ) from None


def _read(text: str, name: str) -> Layout:
    try:
        return Layout.model_validate(yaml12.read_yaml(text)[0])
    except yaml12.NotYaml as error:
        raise AdmissionError(f"{name} is not YAML: {str(error).splitlines()[0]}.", code="layout_invalid") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AdmissionError(
            f"{name} is not a layout: {where or 'the file'}: {first['msg']}.",
            code="layout_invalid",
            hint="`sparkdash/bench/report/layouts/qwen3-coder.yaml` shows the shape.",
        ) from None
