"""Running: the requests that a person may end, by the id of their row.

Owns: which they are, and how one is told. Must not know what a request does; it is ended as if it had failed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from sparkdash.errors import AdmissionError
from sparkdash.gateway.breakable import Breakable

Cancels = dict[str, Callable[[], None]]


class Running:
    """See the module."""

    def __init__(self) -> None:
        self._cancels: Cancels = {}

    def cancel(self, request_id: str) -> None:
        """End a request: its client is told, and its engine stops working on it.

        Raises:
            AdmissionError: code `request_not_found`, status 404: it is over, or there never was one.
        """
        cancel = self._cancels.pop(request_id, None)
        if cancel is None:
            raise AdmissionError(
                f"No request {request_id[:40]!r} waits or runs.",
                code="request_not_found",
                status=404,
                hint="`sparkdash requests` lists those that do.",
            )
        cancel()

    def until_cancelled(self, request_id: str) -> UntilCancelled:
        """A context manager: what is inside can be ended from outside, once.

        Raises:
            AdmissionError: code `request_cancelled`: it was.
        """
        return UntilCancelled(self._cancels, request_id)


class UntilCancelled(Breakable):
    """One request's."""

    __slots__ = ("_cancels", "_id")

    def __init__(self, cancels: Cancels, request_id: str) -> None:
        self._cancels = cancels
        self._id = request_id

    def __enter__(self) -> Self:
        self._cancels[self._id] = self._cancel
        return super().__enter__()

    def _cancel(self) -> None:
        self.off(AdmissionError("This request was cancelled by the one who runs this box.", code="request_cancelled"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancels.pop(self._id, None)
        super().__exit__(kind, error, trace)
