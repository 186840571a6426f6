"""Line about an arm's blank cells: how many, how long they take, and the command that fills them.

Owns: its words. Must not know: the estimate (missing_cells.py).
Rule: the command fills the very report that shows it. A run that the report does not read fills it once runs are
merged, so the line names that command too.
Pure.
"""

from __future__ import annotations

from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import TextBlock, Tone
from sparkdash.bench.report.report import MissingCells
from sparkdash.units import duration


def missing_note(source: TableSource, arm: str) -> TextBlock | None:
    """Return the number of the arm's blank cells, the time and the command to fill them."""
    if source.impossible(arm):
        return None
    name = source.arm(arm)
    if name is not None:
        found = next((one for one in source.report.filling if one.arm == name), None)
        return TextBlock((_missing(found),), Tone.DIM) if found else None
    cells = len(source.report.run.cells)
    command = f"sparkdash bench {arm} --suite {source.suite}"
    text = _missing(MissingCells(arm=arm, cells=cells, of=cells, command=command))
    if not source.report.sources:
        text += "; `sparkdash bench show --matrix` then shows both runs in one report"
    return TextBlock((text,), Tone.DIM)


def _missing(one: MissingCells) -> str:
    time = "time not known yet" if one.seconds is None else f"about {duration(one.seconds)}"
    over = f" over {one.launches} launches" if one.launches > 1 else ""
    return f"Missing {one.cells} of {one.of} cells{over}, {time}: `{one.command}`"
