"""Client: the control API as methods that return their answers, for the one-shot commands.

Owns: sending a row of `api.control` over a connection of the standard library, and reading what comes back. Rule: a
method returns a value of the domain or of `api.answers`, or raises a SparkdashError.
Must not know: terminals, nor which calls there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Call, HttpCall, Stream
from sparkdash.client import address
from sparkdash.client.daemon_connection import DaemonConnection
from sparkdash.client.envelope import error_from_answer, reading_answer
from sparkdash.client.health import FIRST_ERROR_STATUS, is_serving

P = ParamSpec("P")
T = TypeVar("T")


class Client(ControlApi):
    """Client of the daemon at `url`, behind the socket `uds`, or where `address.find_daemon` says. Use it as a context
    manager.

    Every method of the table raises SparkdashError; DaemonError when no daemon answers.
    """

    def __init__(self, url: str | None = None, *, uds: Path | None = None) -> None:
        self.address = address.resolve(url, uds)
        self._connection = DaemonConnection(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def health(self) -> bool:
        """Return whether a daemon answers; never raise."""
        return is_serving(self.address)

    def call(self, row: Call[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the call of a row of the table."""
        request = row.prepare(*args, **kwargs)
        with self._connection.exchange(request, row.silence_s) as reply, reading_answer(self.address):
            content = reply.read()
            if reply.status >= FIRST_ERROR_STATUS:
                raise error_from_answer(reply.status, content, self.address)
            return row.read(content)

    def stream(self, row: Stream[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Yield the items of a stream of the table, until it ends or the iterator is closed."""
        reader = row.reader()
        with reading_answer(self.address):
            for chunk in self._chunks(row.prepare(*args, **kwargs), row.silence_s):
                yield from reader.feed(chunk)
            yield from reader.end()

    def _chunks(self, request: HttpCall, silence_s: float | None) -> Iterator[bytes]:
        with self._connection.exchange(request, silence_s) as reply:
            if reply.status >= FIRST_ERROR_STATUS:
                raise error_from_answer(reply.status, reply.read(), self.address)
            while chunk := reply.read1():
                yield chunk
