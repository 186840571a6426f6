"""Silence: cancels a request whose engine sends nothing for longer than its profile allows.

Owns: one timer for each request with a limit. Must not know what follows. Rule: nothing runs per chunk; when the timer
fires, it asks when the last chunk came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparkdash.domain.profile import Profile
from sparkdash.errors import UpstreamError
from sparkdash.settings import Settings
from sparkdash.supervisor.leasing import AnswerProgress
from sparkdash.units import duration


def silence_limits(profile: Profile, settings: Settings) -> tuple[float | None, float | None]:
    """Seconds until an answer's first byte, and between two pieces: the profile's own limits, else the box's; None: no
    limit.
    """
    own, of_box = (profile.first_byte_s, profile.between_bytes_s), (settings.first_byte_s, settings.between_bytes_s)
    first, between = (mine if mine is not None else its for mine, its in zip(own, of_box, strict=True))
    return first, between


def watch_silence(
    profile: Profile,
    settings: Settings,
    progress: AnswerProgress,
    now: Callable[[], float],
    end: Callable[[UpstreamError], object],
) -> SilenceTimer | None:
    """Start the timer that calls `end` once the engine was silent for too long; None where there is no limit."""
    first, between = silence_limits(profile, settings)
    if first is None and between is None:
        return None
    return SilenceTimer(profile.name, (first, between), progress, now, end)


class SilenceTimer:
    """Silence timer of one request. `cancel` it when the request has ended."""

    def __init__(
        self,
        name: str,
        limits: tuple[float | None, float | None],
        progress: AnswerProgress,
        now: Callable[[], float],
        end: Callable[[UpstreamError], object],
    ) -> None:
        self._name = name
        self._first_s, self._between_s = limits
        self._progress = progress
        self._now = now
        self._end = end
        self._began = now()
        self._handle = self._after(self._first_s)

    def cancel(self) -> None:
        """Stop the timer; `end` is no longer called."""
        if self._handle is not None:
            self._handle.cancel()

    def _after(self, seconds: float | None) -> asyncio.TimerHandle | None:
        """Look again then, and no later than a pause that begins now may last."""
        delays = [each for each in (seconds, self._between_s) if each is not None]
        return asyncio.get_running_loop().call_later(min(delays), self._look) if delays else None

    def _look(self) -> None:
        now, at = self._now(), self._progress.heard_at
        if at is not None and at < self._began:  # from an earlier engine of this request
            at = None
        limit, since = (self._first_s, self._began) if at is None else (self._between_s, at)
        if limit is None or self._progress.is_held_up:
            self._handle = self._after(self._between_s)
        elif now < since + limit:
            self._handle = self._after(since + limit - now)
        else:
            self._end(_silent(self._name, limit, begun=at is not None))


def _silent(name: str, limit_s: float, *, begun: bool) -> UpstreamError:
    what, key = ("broke off: it sent nothing more", "between_bytes_s") if begun else ("did not answer", "first_byte_s")
    return UpstreamError(
        f"{name} {what} within {duration(limit_s)}.",
        code="engine_timeout",
        status=504,
        hint=f"{key} in the profile or in config.toml sets the limit.",
    )
