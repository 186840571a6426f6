"""BodySource: a request's body that is read while it is sent.

Pure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol


class BodySource(Protocol):
    """Body of a request that is read while it is sent."""

    @property
    def size(self) -> int:
        """Bytes of the body."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """Read the body from its beginning."""
        ...


OutgoingBody = bytes | BodySource
