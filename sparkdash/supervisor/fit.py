"""Who must leave, and whether what comes will fit. Pure.

The one place that decides on co-residency. Today at most one managed engine is resident: a GB10's memory is one
pool, and an engine that sizes its KV cache by what is free would be starved by the next. A later issue changes
this room and no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Occupant:
    """A resident engine, as far as memory is concerned."""

    profile: str
    managed: bool = True
    bytes: int | None = None
    """What it gives back when it leaves; None is unknown."""


@dataclass(frozen=True, slots=True)
class Room:
    """The verdict on memory. Bytes."""

    needs: int | None
    available: int | None
    """What there would be once the evicted have left, the reserve taken off. A lower bound when one of them is unknown."""
    fits: bool | None
    """None: not known; such a start is allowed, and the engine's own check is the last word."""


def evictions(comer: Occupant, occupants: Iterable[Occupant]) -> tuple[str, ...]:
    """Which occupants leave so that `comer` can come, in the order given.

    It is among them itself when it is there already: then this is a restart.
    """
    if not comer.managed:
        return ()
    return tuple(o.profile for o in occupants if o.managed)


def room(needs: int | None, available: int | None, leaving: Iterable[Occupant], *, reserve: int) -> Room:
    """Does `needs` fit into what is available now plus what leaves, with `reserve` kept free?"""
    if available is None:
        return Room(needs, None, None)
    gone = list(leaving)
    there = available + sum(o.bytes or 0 for o in gone) - reserve
    if needs is None:
        return Room(None, there, None)
    if needs <= there:
        return Room(needs, there, True)
    return Room(needs, there, None if any(o.bytes is None for o in gone) else False)
