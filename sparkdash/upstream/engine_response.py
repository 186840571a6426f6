"""EngineResponse: an engine's answer, and the ways to take its body."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable

from sparkdash.errors import UpstreamError
from sparkdash.upstream.connection import EngineConnection, Take
from sparkdash.upstream.response_head import Header
from sparkdash.upstream.upgraded import UpgradedEngine

READ_LIMIT = 16 * 1024 * 1024
"""Most that `read` keeps of one answer; the largest /metrics seen is under 1 MiB."""


class EngineResponse:
    """An answer whose body is still to come.

    `headers`: as the engine sent them, without the Content-Length, with names in lower case.
    """

    __slots__ = ("_connection", "content_type", "ends_with_connection", "head", "headers", "length", "status")

    def __init__(self, connection: EngineConnection) -> None:
        self._connection = connection
        self.status = connection.status
        self.head = connection.head
        self.headers: list[Header] = self.head.headers
        self.content_type = self.head.content_type
        """Media type without parameters, in lower case."""
        self.length = connection.length
        """Bytes of the body, where the engine says so before it."""
        self.ends_with_connection = not connection.framed
        """Whether only the connection's end ends the body (no chunks, no length): an engine's death looks the same."""

    @property
    def upgraded(self) -> UpgradedEngine | None:
        """The engine's socket after a 101; None after any other answer."""
        return self._connection.upgraded

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, never in empty pieces.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        while piece := await self._connection.piece():
            yield piece

    def pour(self, take: Take) -> Awaitable[bytes]:
        """Give each piece of the body to `take` as it comes, on the loop: `take` must not wait. Return the last piece.

        What `take` raises is raised here.

        Raises:
            UpstreamError: code `engine_died`, when the connection ends before the body does.
        """
        return self._connection.pour(take)

    def pause(self) -> None:
        """Let the engine wait, as the taker of the body cannot take more."""
        self._connection.pause()

    def resume(self) -> None:
        """Read from the engine again."""
        self._connection.resume()

    def broke_off(self, why: str) -> UpstreamError:
        """Make the error of an answer that ended too soon: code `engine_died`."""
        return self._connection.broke_off(why)

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """Read the body, at most `limit` bytes of it."""
        parts, size = [], 0
        while size < limit and (piece := await self._connection.piece()):
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)[:limit]
