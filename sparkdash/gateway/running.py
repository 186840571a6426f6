"""Running: the requests that a person may end, by the id of their row.

Owns: which they are, and how one is told. Must not know what a request does; it is ended as if it had failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkdash.errors import AdmissionError
from sparkdash.gateway.breakable import Breakable


class Running:
    """See the module."""

    def __init__(self) -> None:
        self._cancels: dict[str, Callable[[], None]] = {}

    def cancel(self, request_id: str) -> None:
        """End a request: its client is told, and its engine stops working on it.

        Raises:
            AdmissionError: code `request_not_found`, status 404: it is over, or there never was one.
        """
        cancel = self._cancels.get(request_id)
        if cancel is None:
            raise AdmissionError(
                f"No request {request_id[:40]!r} waits or runs.",
                code="request_not_found",
                status=404,
                hint="`sparkdash requests` lists those that do.",
            )
        cancel()

    @contextmanager
    def until_cancelled(self, request_id: str) -> Iterator[None]:
        """What is inside can be ended from outside, once.

        Raises:
            AdmissionError: code `request_cancelled`: it was.
        """
        with Breakable() as stretch:

            def cancel() -> None:
                del self._cancels[request_id]
                stretch.off(_cancelled())

            self._cancels[request_id] = cancel
            try:
                yield
            finally:
                self._cancels.pop(request_id, None)


def _cancelled() -> AdmissionError:
    return AdmissionError("This request was cancelled by the one who runs this box.", code="request_cancelled")
