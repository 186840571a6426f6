"""RunningRequests: the requests that a person may cancel, by the id of their row.

Owns: the callback that cancels each. Must not know what a request does; it ends as if it had failed.
"""

from __future__ import annotations

from sparkdash.errors import AdmissionError
from sparkdash.gateway.ports import EndRequest
from sparkdash.limits import shown


class RunningRequests:
    """Registry of waiting and running requests."""

    def __init__(self) -> None:
        self._offs: dict[str, EndRequest] = {}

    def begun(self, request_id: str, off: EndRequest) -> None:
        """Register a request; `off` cancels it with the reason `request_cancelled`, at most once."""
        self._offs[request_id] = off

    def ended(self, request_id: str) -> None:
        """Remove a request. Idempotent."""
        self._offs.pop(request_id, None)

    def cancel(self, request_id: str) -> None:
        """Cancel a request: its client is told, and its engine stops working on it.

        Raises:
            AdmissionError: code `request_not_found`, status 404: it is over, or there never was one.
        """
        off = self._offs.pop(request_id, None)
        if off is None:
            raise unknown_request(request_id)
        off(AdmissionError("The owner of this box cancelled this request.", code="request_cancelled"))


def unknown_request(request_id: str) -> AdmissionError:
    """Build the refusal to cancel a request that has ended, or never existed."""
    return AdmissionError(
        f"No request {shown(request_id)!r} is waiting or running.",
        code="request_not_found",
        status=404,
        hint="`sparkdash requests` lists the current ones.",
    )
