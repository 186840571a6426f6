"""Progress of a download, counted by the fetching threads and read by the reporting one.

Owns: the counts, the rate, and the signal that ends the threads. Must not know what is fetched.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

WINDOW_S = 10.0
"""Window of the rate, as the library counts in pieces of 10 MB."""


@dataclass(frozen=True, slots=True)
class WeightsProgress:
    """Progress report. Bytes include what was here before; the rate counts only what arrives now."""

    came_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    """Rate over the last WINDOW_S; None before the first bytes."""
    eta_s: float | None = None
    """Missing bytes divided by the rate."""
    done: bool = False


class Stopped(Exception):  # noqa: N818 - no error: ends a thread that is no longer needed
    """Raised in a downloading thread after `DownloadMeter.stop`."""


class DownloadMeter:
    """Counts the bytes of a download: `total`, of which `missing` are to come. Safe to use from many threads."""

    def __init__(self, total: int, missing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._came = total - missing
        self._received = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._marks = deque([(clock(), 0)])
        """(time, bytes received until then), from the last one before the window on."""

    def stop(self) -> None:
        """Make every bar raise Stopped from now on."""
        self._over.set()

    def bar(self, counted: int, **facts: Any) -> DownloadBar:
        """Make a progress bar for the library; `counted` bytes of the file are already included."""
        self.add(0, int(facts.get("initial") or 0) - counted)  # differs if the server does not resume
        return DownloadBar(self)

    def add(self, received: int, came: int) -> None:
        """Count received bytes, and the growth of the files by `came`. Raises Stopped."""
        with self._lock:
            now = self._clock()
            self._came += came
            self._received += received
            self._marks.append((now, self._received))
            while len(self._marks) > 2 and self._marks[1][0] <= now - WINDOW_S:
                self._marks.popleft()
        if self._over.is_set():
            raise Stopped

    def now(self) -> WeightsProgress:
        """Return the current progress."""
        with self._lock:
            since, before = self._marks[0]
            seconds, received = self._clock() - since, self._received - before
            came = min(self._came, self._total)
        rate = received / seconds if received > 0 and seconds > 0 else None
        return WeightsProgress(came, self._total, rate, (self._total - came) / rate if rate else None)

    def end(self) -> WeightsProgress:
        """Return the final progress."""
        return WeightsProgress(self._total, self._total, done=True)


class DownloadBar:
    """The part of tqdm's interface that the library's download uses."""

    def __init__(self, meter: DownloadMeter) -> None:
        self._meter = meter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing, as no bar is drawn."""

    def update(self, count: float | None = 1) -> None:
        """Count more bytes; negative after the library has restarted a file."""
        grown = int(count or 0)
        self._meter.add(max(0, grown), grown)
