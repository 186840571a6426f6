"""Layouts: the tables of published documents, to be filled from runs (filled_tables.py).

A layout may name arms that a run lacks; their rows then show how to fill them.
"""

from pathlib import Path

from pydantic import ValidationError

from sparkdash.bench.judge.metrics import main_metric
from sparkdash.bench.report.report import Report
from sparkdash.catalog import yaml12
from sparkdash.domain.base import Frozen
from sparkdash.errors import AdmissionError
from sparkdash.paths import read_small_text

SHIPPED = Path(__file__).parent / "layouts"


class TableLayout(Frozen):
    """Table of a published document: its title, columns and rows are templates."""

    title: str
    level: int = 2
    given: dict[str, str] = {}
    """Texts that all rows share: `profile`, `suite` (its measurement), `cell`, `context`, `over` (base of gains)."""
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
    metric: str = "decode"

    @property
    def named(self) -> frozenset[str]:
        """Profiles of its tables; empty: those of the run."""
        rows = (table.given | row for table in self.tables for row in table.rows)
        return frozenset(row[key] for row in rows for key in ("profile", "over") if key in row)


def derive_layout(report: Report, metric: str | None = None) -> Layout:
    title = f"{_compared(report)}: {report.run.suite} on {report.run.host.name or 'this box'}"
    return Layout(title=title, metric=metric or main_metric(report.run.suite))


def _compared(report: Report) -> str:
    """Return `B against A`, `C, B and 3 others against A`, or the one arm."""
    base = report.run.baseline
    others = [arm.name for arm in report.arms if arm.name != base]
    if len(others) > 3:
        others = [*others[:2], f"{len(others) - 2} others"]
    named = " and ".join(filter(None, (", ".join(others[:-1]), *others[-1:])))
    return f"{named} against {base}" if others else base


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
            hint="`sparkdash/bench/report/layouts/steps.yaml` shows the shape.",
        ) from None
