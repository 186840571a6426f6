"""Shelf: each profile's image and weights on the box.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen


class Item(Frozen):
    """Image, or all weights of a profile. `size` is bytes on disk; for incomplete weights, the bytes so far."""

    here: bool
    size: int | None = None


class Stock(Frozen):
    """Image and weights of one profile. None: not needed, or unknown."""

    image: Item | None = None
    weights: Item | None = None


class Shelf(Frozen):
    """Stock of all profiles; a profile of which nothing is known, such as a simulated one, is absent."""

    stock: dict[str, Stock] = {}
