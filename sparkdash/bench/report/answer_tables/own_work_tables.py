"""Tables of answers to the owner's own requests: verdict in words, validity, equality.

Owns: which figures stand side by side. Must not know: how they are judged, Markdown.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.bench.judge.own_work import EqualAnswers, OwnWork, ValidShare
from sparkdash.bench.report.blocks import DASH, Block, Grid, Heading, TableCell, TextBlock, Tone

HEAD = ("Arm", "Requests", "Tool calls valid", "JSON valid", "Identical", "Agree", "Same tools")


def own_work_tables(found: Sequence[OwnWork]) -> Iterator[Block]:
    """Verdicts of the arms, their shares of valid answers with the paired tests, and equal answers."""
    if not found:
        return
    asked = any(one.asked for one in found)
    yield Heading(2, "Your own requests" if asked else "Answers")
    for one in found:
        if one.verdict is not None:
            yield TextBlock((f"{one.arm}: {one.verdict}.",), _tone(one))
    if not asked:
        return
    yield Grid(head=HEAD, rows=tuple(_row(one) for one in found))
    tests = tuple(row for one in found for row in _tests(one))
    if tests:
        yield Grid(head=("Arm", "Checked", "Faults", "Against the baseline"), rows=tests)
    notes = (
        "A request counts for tools when it demands a call, or when an arm called a tool.",
        "Arguments are checked against the request's own schemas. Equal answers are compared with the baseline's;",
        "the baseline's row compares its own first two launches: what differs there is numerics.",
    )
    yield TextBlock((" ".join(notes),), Tone.DIM)


def _tone(one: OwnWork) -> Tone:
    shares = [part for part in (one.tools, one.json_answers, one.needles) if part is not None]
    if any(part.is_lost for part in shares):
        return Tone.WORSE
    return Tone.BETTER if any(part.is_gained for part in shares) else Tone.PLAIN


def _row(one: OwnWork) -> tuple[TableCell, ...]:
    cells = (one.arm, str(one.asked), _share(one.tools), _share(one.json_answers), *_equal(one.equal))
    return tuple(TableCell(text) for text in cells)


def _share(found: ValidShare | None) -> str:
    if found is None or found.share is None:
        return DASH
    return f"{found.valid}/{found.n} = {100 * found.share:.1f}%"


def _equal(found: EqualAnswers | None) -> tuple[str, ...]:
    if found is None:
        return (DASH,) * 3
    return tuple(f"{count}/{found.n}" for count in (found.identical, found.agreeing, found.deciding))


def _tests(one: OwnWork) -> Iterator[tuple[TableCell, ...]]:
    for name, found in (("tool calls", one.tools), ("JSON", one.json_answers)):
        if found is not None and (found.faults or found.verdict is not None):
            faults = ", ".join(f"{count} {fault}" for fault, count in found.faults.items()) or "none"
            tone = Tone.WORSE if found.is_lost else Tone.BETTER if found.is_gained else Tone.DIM
            said = DASH if found.verdict is None else found.verdict.text
            yield (*(TableCell(text) for text in (one.arm, name, faults)), TableCell(said, tone))
