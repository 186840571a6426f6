"""Placement: on which node or nodes an engine comes, where several could take it.

Owns: which placements a profile has, and the order of preference among what `fit` chooses for each. Must not know
memory figures, nor how nodes are reached.

Rule 1: a placement that evicts nobody goes before one that evicts. Of several the preferred one is taken: nodes
where no swap moves memory, then those where the profile ran last, then this box, then the others in their order.
Rule 2: of placements that evict, the one whose evictions cost least.
Rule 3: a node without a box (silent, refused) is no place, and nobody leaves for a profile that needs it.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from sparkdash.domain.node import LOCAL
from sparkdash.supervisor.scheduling import fit
from sparkdash.supervisor.scheduling.room import BoxMemory, Occupant

Nodes = tuple[str, ...]


def placements(
    names: Sequence[str], *, count: int, pinned: str | None, last: Nodes = (), moving: Collection[str] = ()
) -> list[Nodes]:
    """List the sets of `count` nodes that an engine may run on, the preferred first; of several nodes LOCAL serves.

    `names` are the nodes that can be used, `pinned` is the one that it must use, `last` are those where it ran last,
    and on those that are `moving` a swap takes memory or gives it back.
    """
    sets: list[Nodes] = [(name,) for name in names] if count == 1 else _sets_with_local(names, count)
    found = [some for some in sets if pinned is None or pinned in some]
    return sorted(found, key=lambda some: (not set(some).isdisjoint(moving), some != last))


def _sets_with_local(names: Sequence[str], count: int) -> list[Nodes]:
    if LOCAL not in names:
        return []
    others = [name for name in names if name != LOCAL]
    return [(LOCAL, *some) for some in combinations(others, count - 1)]


def place(
    comer: Occupant,
    occupants: Iterable[Occupant],
    boxes: Mapping[str, BoxMemory],
    places: Sequence[Nodes],
    *,
    person: bool,
) -> fit.Choice:
    """Choose the nodes of `comer`, and who leaves there. Without any place it is known not to fit."""
    there = list(occupants)
    if not comer.managed:
        return fit.choose(comer, there, boxes, person=person)
    if not places:
        return fit.Choice(needs=comer.need.room_bytes, fits=False)
    known = {one.profile: one for one in there}
    choices = [fit.choose(replace(comer, nodes=some), there, boxes, person=person) for some in places]
    return min(
        choices, key=lambda choice: _rank(choice, [known[name] for name in choice.names if name != comer.profile])
    )


def _rank(choice: fit.Choice, gone: Sequence[Occupant]) -> tuple[Any, ...]:
    """Sort key of a choice, the best first; `gone` are those who leave for it, without its own older engine."""
    if choice.refused:  # a person may still say that a pinned engine leaves
        return (True, not choice.pinned, -(choice.available or 0))
    pinned, busy = any(one.pinned for one in gone), any(one.busy for one in gone)
    return (False, bool(gone), choice.fits is not True, pinned, busy, len(gone), fit.price(gone))
