"""Checks of nodes: the readings that they declare, and the register of all.

Owns: the form of a declaration. Must not know any check. Results are those of `doctor.check`.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparkdash.doctor.check import CheckResult
from sparkdash.doctor.nodes.facts import BoxFacts, PairFacts

BoxLook = Callable[[BoxFacts], Iterator[CheckResult]]
PairLook = Callable[[PairFacts], Iterator[CheckResult]]


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Check of each box (`box`) or of each pair (`pair`), with the sections of `remote_readings` that it needs."""

    name: str
    about: str
    box: BoxLook | None = None
    pair: PairLook | None = None
    reads: tuple[str, ...] = ()
    connects: bool = False
    """Whether it needs the trial of TCP connections between the boxes."""


NODE_CHECKS: dict[str, NodeCheck] = {}
"""Checks of nodes by name, in the order of the report."""


def box_check(name: str, about: str, *, reads: tuple[str, ...] = ()) -> Callable[[BoxLook], BoxLook]:
    """Register a function as a check of each box."""

    def register(look: BoxLook) -> BoxLook:
        NODE_CHECKS[name] = NodeCheck(name, about, box=look, reads=reads)
        return look

    return register


def pair_check(
    name: str, about: str, *, reads: tuple[str, ...] = (), connects: bool = False
) -> Callable[[PairLook], PairLook]:
    """Register a function as a check of each pair."""

    def register(look: PairLook) -> PairLook:
        NODE_CHECKS[name] = NodeCheck(name, about, pair=look, reads=reads, connects=connects)
        return look

    return register
