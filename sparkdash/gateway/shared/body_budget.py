"""Room: how much memory the bodies of all requests may take together.

A request keeps its body until its engine answers, as it may have to be sent once more; two hundred may wait.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sparkdash.errors import AdmissionError
from sparkdash.units import MIB

RETRY_S = 10.0


class Room:
    """One for the gateway. `taken`: bytes in use."""

    def __init__(self, limit_mib: int) -> None:
        self.limit = limit_mib * MIB
        self.taken = 0

    def place(self) -> Place:
        """One request's share; use it as a context manager."""
        return Place(self)


class Place:
    """What one request's body takes, until it is left or given back; and the `body` itself, which nobody else keeps."""

    __slots__ = ("_room", "_taken", "body")

    def __init__(self, room: Room) -> None:
        self.body = b""
        self._room = room
        self._taken = 0

    def take(self, size: int) -> None:
        """That many bytes more.

        Raises:
            AdmissionError: code `bodies_full`, status 503 with Retry-After.
        """
        room = self._room
        if room.taken + size > room.limit:
            raise _full(room)
        room.taken += size
        self._taken += size

    def give_back(self) -> None:
        """The body is no longer kept. Idempotent."""
        self.body = b""
        self._room.taken -= self._taken
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.give_back()


def _full(room: Room) -> AdmissionError:
    return AdmissionError(
        f"The requests that wait hold {room.taken // MIB} MiB, and no more than {room.limit // MIB} are kept.",
        code="bodies_full",
        status=503,
        retry_after=RETRY_S,
        hint="Come back later, or raise `bodies_limit_mib` in config.toml.",
    )
