"""Images and weights of profiles on the box and on its nodes, and their copies to another node.

Pure.
"""

from __future__ import annotations

from enum import StrEnum

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


class CopyKind(StrEnum):
    """Kind of a copied thing: image or weights."""

    IMAGE = "image"
    WEIGHTS = "weights"


class CopyStep(StrEnum):
    """Step of a copy, in their order."""

    CHECK = "check"
    """Files of both nodes are compared; what differs in its time only is hashed."""
    SEND = "send"
    LOAD = "load"
    """The other node's runtime unpacks the image."""


class CopyItem(Frozen):
    """An image or a model on its way to a node."""

    kind: CopyKind
    name: str
    """Name of the image, or path or repository of the model."""
    bytes: int
    missing_bytes: int
    """Bytes still to send; 0: everything is there."""
    here: bool = True
    """Whether this box has it. What neither has cannot be copied."""
    replaces: str | None = None
    """Id of the image of the same name on the node, which differs."""


class CopyPlan(Frozen):
    """Image and weights that a profile needs on a node, and the part that is missing there."""

    profile: str
    node: str
    items: tuple[CopyItem, ...] = ()
    alike: bool = True
    """Whether the node must have the same as this box, as for an engine on both."""

    @property
    def missing(self) -> tuple[CopyItem, ...]:
        """Items that are not complete on the node."""
        return tuple(item for item in self.items if item.missing_bytes or not item.here)

    @property
    def missing_bytes(self) -> int:
        """Bytes to send."""
        return sum(item.missing_bytes for item in self.items)


class CopyProgress(Frozen):
    """Progress report of a copy. Bytes are those of the present step."""

    kind: CopyKind
    name: str
    node: str
    step: CopyStep
    came_bytes: int
    total_bytes: int
    """Bytes of this step, with what had come before; 0: unknown."""
    bytes_per_s: float | None = None
    eta_s: float | None = None
    done: bool = False
