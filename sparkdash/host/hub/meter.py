"""DownloadMeter: how far a download is, counted by the threads that fetch and read by the one that tells.

Owns: the counts, the rate, and the word that ends the threads. Must not know what is fetched.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

WINDOW_S = 10.0
"""The rate is over the last so many seconds: the library counts in pieces of 10 MB."""


@dataclass(frozen=True, slots=True)
class WeightsProgress:
    """One step of fetching weights. Bytes count what was here already; the rate only what comes now."""

    came_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    """Bytes received in the last seconds, divided by those seconds; None before there are any."""
    eta_s: float | None = None
    """What is missing divided by the rate."""
    done: bool = False


class Stopped(Exception):  # noqa: N818 - no error: how a thread ends that is no longer wanted
    """Raised in a downloading thread after `Meter.stop`."""


class DownloadMeter:
    """Bytes of `total`, of which `missing` are to come. Safe to use from many threads."""

    def __init__(self, total: int, missing: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._came = total - missing
        self._received = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._marks = deque([(clock(), 0)])
        """(time, bytes received by then), from the last one before the window on."""

    def stop(self) -> None:
        """From now on every bar raises Stopped."""
        self._over.set()

    def bar(self, counted: int, **facts: Any) -> DownloadBar:
        """What the library takes for a file's progress bar; `counted` of its bytes are in the count already."""
        self.add(0, int(facts.get("initial") or 0) - counted)  # not the same where the server does not resume
        return DownloadBar(self)

    def add(self, received: int, came: int) -> None:
        """So many bytes were received, and the files grew by so many. Raises Stopped."""
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
        """How far it is."""
        with self._lock:
            since, before = self._marks[0]
            seconds, received = self._clock() - since, self._received - before
            came = min(self._came, self._total)
        rate = received / seconds if received > 0 and seconds > 0 else None
        return WeightsProgress(came, self._total, rate, (self._total - came) / rate if rate else None)

    def end(self) -> WeightsProgress:
        """All is here."""
        return WeightsProgress(self._total, self._total, done=True)


class DownloadBar:
    """As much of tqdm as the library's download uses."""

    def __init__(self, meter: DownloadMeter) -> None:
        self._meter = meter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is drawn here."""

    def update(self, count: float | None = 1) -> None:
        """So many bytes more; below zero when the library begins a file again."""
        grown = int(count or 0)
        self._meter.add(max(0, grown), grown)
