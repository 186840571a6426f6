"""Shelf: what of each profile is on the box, its image and its weights."""

from __future__ import annotations

from sparkdash.domain.base import Frozen


class Item(Frozen):
    """An image, or all weights of a profile. `size` is in bytes on disk; of weights that are not whole, what came so far."""

    here: bool
    size: int | None = None


class Stock(Frozen):
    """One profile's. None: it needs none, or it is not known."""

    image: Item | None = None
    weights: Item | None = None


class Shelf(Frozen):
    """By profile; nothing of one of which nothing is known, as of a simulated one."""

    stock: dict[str, Stock] = {}
