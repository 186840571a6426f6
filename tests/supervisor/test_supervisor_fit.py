"""Who leaves and whether it fits, in plain figures."""

from __future__ import annotations

import pytest

from sparkdash.supervisor.fit import Occupant, Room, evictions, room
from sparkdash.units import GIB


def test_every_managed_engine_leaves_for_a_managed_one_and_nobody_for_a_stranger() -> None:
    """One managed engine at a time; what is elsewhere takes no place."""
    there = [Occupant("a"), Occupant("far", managed=False), Occupant("b")]
    assert evictions(Occupant("c"), there) == ("a", "b")
    assert evictions(Occupant("a"), there) == ("a", "b")
    assert evictions(Occupant("far2", managed=False), there) == ()


@pytest.mark.parametrize(
    ("needs", "available", "leaving", "expected"),
    [
        (40, 60, [], Room(40 * GIB, 50 * GIB, True)),
        (50, 60, [], Room(50 * GIB, 50 * GIB, True)),
        (51, 60, [], Room(51 * GIB, 50 * GIB, False)),
        (90, 30, [80], Room(90 * GIB, 100 * GIB, True)),
        (90, 30, [None], Room(90 * GIB, 20 * GIB, None)),
        (15, 30, [None], Room(15 * GIB, 20 * GIB, True)),
        (None, 30, [80], Room(None, 100 * GIB, None)),
        (40, None, [80], Room(40 * GIB, None, None)),
    ],
)
def test_what_leaves_counts_the_reserve_does_not_and_unknown_is_never_a_no(
    needs: int | None, available: int | None, leaving: list[int | None], expected: Room
) -> None:
    """All in GiB, 10 in reserve."""
    gone = [Occupant(str(n), bytes=None if size is None else size * GIB) for n, size in enumerate(leaving)]
    to_bytes = [None if value is None else value * GIB for value in (needs, available)]
    assert room(*to_bytes, gone, reserve=10 * GIB) == expected
