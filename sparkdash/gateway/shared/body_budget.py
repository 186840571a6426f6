"""BodyBudget: memory that the bodies of all requests may take together.

A request keeps its body until its engine answers, as it may have to be sent again; two hundred requests may wait.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from sparkdash.errors import AdmissionError
from sparkdash.units import MIB

RETRY_S = 10.0


class BodyBudget:
    """Budget of the gateway. `taken`: bytes in use; `setting`: the key of config.toml that sets the limit."""

    def __init__(self, limit_mib: int, setting: str = "bodies_limit_mib") -> None:
        self.setting = setting
        self.limit = limit_mib * MIB
        self.taken = 0

    def share(self) -> BodyShare:
        """Open one request's share; use it as a context manager."""
        return BodyShare(self)


class BodyShare:
    """Bytes reserved for one request's body, and the `body` itself, which no other object keeps."""

    __slots__ = ("_also", "_budget", "_taken", "body")

    def __init__(self, budget: BodyBudget) -> None:
        self.body = b""
        self._budget = budget
        self._taken = 0
        self._also: Callable[[], object] | None = None

    def on_release(self, also: Callable[[], object]) -> None:
        """Have `also` called, once, when the body is dropped."""
        self._also = also

    def reserve(self, size: int) -> None:
        """Reserve that many more bytes.

        Raises:
            AdmissionError: code `bodies_full`, status 503 with Retry-After.
        """
        budget = self._budget
        if budget.taken + size > budget.limit:
            raise _full(budget)
        budget.taken += size
        self._taken += size

    def release(self) -> None:
        """Drop the body and return its bytes. Idempotent."""
        self.body = b""
        self._budget.taken -= self._taken
        self._taken = 0
        if self._also is not None:
            also, self._also = self._also, None
            also()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()


def _full(budget: BodyBudget) -> AdmissionError:
    return AdmissionError(
        f"The bodies of waiting requests take {budget.taken // MIB} MiB; the limit is {budget.limit // MIB} MiB.",
        code="bodies_full",
        status=503,
        retry_after=RETRY_S,
        hint=f"Come back later, or raise `{budget.setting}` in config.toml.",
    )
