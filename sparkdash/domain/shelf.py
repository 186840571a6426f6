"""Shelf: each profile's image and weights on the box and on its nodes.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen


class Item(Frozen):
    """Image, or all weights of a profile. `size` is bytes on disk; for incomplete weights, the bytes so far."""

    here: bool
    size: int | None = None


class NodeStock(Frozen):
    """Whether another node has a profile's image and all of its weights. None: not needed."""

    image: bool | None = None
    weights: bool | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the profile lacks there."""
        return False not in (self.image, self.weights) and (self.image, self.weights) != (None, None)


class Stock(Frozen):
    """Image and weights of one profile. None: not needed, or unknown."""

    image: Item | None = None
    weights: Item | None = None
    nodes: dict[str, NodeStock] = {}
    """Image and weights on other nodes; nodes that did not answer are left out."""


class Shelf(Frozen):
    """Stock of all profiles; a profile of which nothing is known, such as a simulated one, is absent."""

    stock: dict[str, Stock] = {}
