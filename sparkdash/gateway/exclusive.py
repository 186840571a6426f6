"""Exclusive: the gateway reserved for one client that measures.

Rule 1: a holder that stops renewing loses the lease: nothing must clean up after a killed process.
Rule 2: running requests go on when the lease is taken; only later ones are refused. Stopping is never refused.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from sparkdash.errors import AdmissionError

TTL_S = 15.0
"""Life of a lease without renewal; holders renew it three times as often."""
SILENT_S = TTL_S / 2
"""Seconds of silence after which a holder has missed a renewal and may have died."""
COME_BACK_S = 30.0
"""Retry-After when the holder does not say how long it will take."""


@dataclass(frozen=True, slots=True)
class ExclusiveHold:
    """Lease of one holder. Times by the monotonic clock."""

    token: str
    holder: str
    """Name of the holder, such as `sparkdash bench (seeds)`."""
    lapses_at: float
    free_at: float | None
    ends: bool = False
    """Whether the holder was asked to let go; told at its next renewal."""

    def by(self, token: str) -> bool:
        """Whether this is the holder's token. Compared as bytes, as a header may hold any text."""
        return secrets.compare_digest(self.token.encode(), token.encode("utf-8", "surrogatepass"))


class Exclusive:
    """Grants the exclusive lease."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = monotonic
        self.taken: ExclusiveHold | None = None
        """The last hold; it may have lapsed."""

    @property
    def held(self) -> ExclusiveHold | None:
        if self.taken is not None and self.taken.lapses_at <= self._now():
            self.taken = None
        return self.taken

    def take(self, holder: str, expected_s: float | None = None) -> ExclusiveHold:
        """Take the lease for TTL_S. Raises AdmissionError: code `held`: another has it."""
        self.only()
        self.taken = self._right(secrets.token_urlsafe(16), holder, expected_s)
        return self.taken

    def renew(self, token: str, expected_s: float | None = None) -> ExclusiveHold:
        """Renew the lease for TTL_S. Raises AdmissionError: code `lease_lost`: it had lapsed."""
        held = self.held
        if held is None or not held.by(token):
            raise AdmissionError(
                "This lease has lapsed: it was not renewed in time, or the daemon was restarted.",
                code="lease_lost",
                status=409,
                hint="Take a new lease.",
            )
        self.taken = replace(self._right(token, held.holder, expected_s), ends=held.ends)
        return self.taken

    def release(self, token: str) -> bool:
        """Release the lease; False: not the holder's token, or the lease has lapsed."""
        if self.held is None or not self.held.by(token):
            return False
        self.taken = None
        return True

    def end(self) -> None:
        """Ask the holder to let go. Raises AdmissionError: code `not_held`."""
        held = self.held
        if held is None:
            raise AdmissionError("No client has this box to itself.", code="not_held", status=409)
        self.taken = replace(held, ends=True)

    def admit(self, token: str | None) -> None:
        """Admit a request with that token. Raises AdmissionError: 503 `held`, with its holder and a Retry-After."""
        held = self.held
        if held is not None and (token is None or not held.by(token)):
            raise self._refusal(held)

    def only(self) -> None:
        """Check that no measurement runs. Raises AdmissionError: 503 `held`."""
        if (held := self.held) is not None:
            raise self._refusal(held)

    def _refusal(self, held: ExclusiveHold) -> AdmissionError:
        now = self._now()
        text = f"{held.holder} has this box to itself, to measure without other load."
        wait = COME_BACK_S if held.free_at is None else max(1.0, held.free_at - now)
        if (silent_s := now - held.lapses_at + TTL_S) > SILENT_S:
            wait = max(1.0, held.lapses_at - now)
            text += f" It has been silent for {silent_s:.0f} s; after {wait:.0f} s more, the box is free."
        return AdmissionError(
            text,
            code="held",
            status=503,
            retry_after=wait,
            hint="Try again when it is done, or end it: `e` on the dashboard's A/B page, or Ctrl-C where it runs.",
        )

    def _right(self, token: str, holder: str, expected_s: float | None) -> ExclusiveHold:
        now = self._now()
        return ExclusiveHold(token, holder, now + TTL_S, None if expected_s is None else now + expected_s)
