"""What a plan's verdict says, in each of its cases."""

from __future__ import annotations

import pytest

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.supervisor.decide.fit import BoxMemory, Choice, Leaving
from sparkdash.supervisor.planner import verdict
from sparkdash.units import GIB

BOX = BoxMemory(128 * GIB, 100 * GIB, 10 * GIB)
LEFT = (Leaving("old", "idle"),)


def need(basis: Basis) -> Need:
    """40 GiB."""
    return Need(basis=basis, terms=(Term(name="steady", bytes=40 * GIB, source="test"),))


@pytest.mark.parametrize(
    ("basis", "choice", "beside", "said"),
    [
        (Basis.LEARNED, Choice((), 40 * GIB, 90 * GIB, True), (), "It fits now."),
        (Basis.LEARNED, Choice((), 40 * GIB, 90 * GIB, True), ("a", "b"), "It fits now, beside a and b."),
        (Basis.LEARNED, Choice(LEFT, 40 * GIB, 90 * GIB, True), ("a",), "It fits once old has left, beside a."),
        (
            Basis.LEARNED,
            Choice(LEFT, 40 * GIB, 35 * GIB, True),
            (),
            "It fits once old has left, within the reserve, as it did here before.",
        ),
        (
            Basis.DECLARED,
            Choice(LEFT, 40 * GIB, 35 * GIB, False),
            (),
            "It does not fit, whichever engines leave: 35.0 GiB can be freed beyond the reserve of 10.0 GiB.",
        ),
        (
            Basis.ESTIMATED,
            Choice(LEFT, 40 * GIB, 35 * GIB, None),
            (),
            "Whether it fits is uncertain: its need is estimated, or the memory of an engine that leaves was never measured. It is tried once old has left.",
        ),
        (
            Basis.UNKNOWN,
            Choice(LEFT, None, 35 * GIB, None),
            (),
            "Whether it fits is unknown, because its need is unknown. It runs alone, and is tried once old has left.",
        ),
        (Basis.DECLARED, Choice(fits=True), (), "It runs elsewhere and takes nothing here."),
    ],
)
def test_one_sentence_tells_what_to_expect(basis: Basis, choice: Choice, beside: tuple[str, ...], said: str) -> None:
    """For people; `fits` is for programs."""
    assert verdict(need(basis), choice, BOX, beside) == said
