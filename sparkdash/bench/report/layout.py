"""Layout of a run's arms in its tables: builds by modes of speculation, with titles.

A layout may name arms that a run lacks; their cells then show how to fill them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, ValidationError

from sparkdash.bench.judge.metrics import main_metric
from sparkdash.bench.report.report import ArmReport, Report
from sparkdash.catalog import yaml12
from sparkdash.domain.base import Frozen
from sparkdash.engines.roofline import parse_speculation
from sparkdash.errors import AdmissionError
from sparkdash.paths import read_small_text

SHIPPED = Path(__file__).parent / "layouts"
PLAIN = "Vanilla"
"""Name of the mode without speculation in the published tables."""
_SPECULATES = frozenset({"spec", "speculative", "draft", "drafter", "drafts", "nst", "k", "n", "x"})
"""Words of an arm's name that tell of speculation, beside its method."""


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
    own_delta: bool = False
    recipe: bool = False
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
    """Derive a layout from the run: speculating arms stand beside the arm whose name begins theirs."""
    modes = {arm.name: _mode(arm) for arm in report.arms}
    builds: dict[str, dict[str, str]] = {}
    plain = [arm for arm in report.arms if modes[arm.name].name == PLAIN]
    for arm in report.arms:
        home = _home(arm, plain)
        taken = builds.setdefault(home, {})
        if modes[arm.name].name in taken:  # two of a mode: a build of its own
            taken = builds.setdefault(arm.name, {})
        taken[modes[arm.name].name] = arm.name
    used = {mode.name: mode for mode in modes.values()}
    return Layout(
        title=f"{_compared(report)}: {report.run.suite} on {report.run.host.name or 'this box'}",
        modes=tuple(sorted(used.values(), key=lambda mode: mode.name != PLAIN)),
        groups=tuple(
            BuildGroup(title=name, builds=(Build(name=name, title=name, arms=arms),)) for name, arms in builds.items()
        ),
        metric=metric or main_metric(report.run.suite),
        warm=True,
        own_delta=True,
        recipe=len(report.arms) > 1,
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


def _mode(arm: ArmReport) -> SpeculationMode:
    """Return the mode by the launch's speculation: `eagle3 k=1` is +EAGLE3 NST=1."""
    method, count = parse_speculation(arm.provenance.speculation if arm.provenance else None)
    if not method:
        return SpeculationMode(name=PLAIN, title=PLAIN, letter="V")
    name = f"+{method.upper()}={count}" if count else f"+{method.upper()}"
    return SpeculationMode(
        name=name,
        title=f"+{method.upper()} NST={count}" if count else name,
        letter=f"{method[:1].upper()}{count or ''}",
    )


def _home(arm: ArmReport, plain: list[ArmReport]) -> str:
    """Return the plain arm whose name this one's extends by its speculation alone, else the arm itself.

    A name that tells of more (`hybrid-int8-mtp`), another image or other weights are another build: `+MTP` would
    credit speculation with the rest.
    """
    alike = (one.name for one in plain if arm.name.startswith(one.name) and _build(one) == _build(arm))
    home = max(alike, key=len, default=arm.name)
    method, _ = parse_speculation(arm.provenance.speculation if arm.provenance else None)
    added = re.findall(r"[a-z]+", arm.name[len(home) :].lower())
    return home if all(word in _SPECULATES or (method or "").lower().startswith(word) for word in added) else arm.name


def _build(arm: ArmReport) -> tuple[str | None, ...]:
    told = arm.provenance
    return (told.image, told.image_digest, told.model) if told else ()


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
