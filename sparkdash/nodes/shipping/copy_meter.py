"""Progress of a copy: counted by the threads that send, read by the one that reports.

Owns: the present step and its bytes. Must not know files or nodes' connections.
"""

from __future__ import annotations

import threading

from sparkdash.domain.local_files import CopyKind, CopyProgress, CopyStep
from sparkdash.host.hub_download import DownloadMeter, Stopped


class CopyMeter:
    """Counts the bytes of one item's copy, step by step. Safe to use from many threads."""

    def __init__(self, kind: CopyKind, name: str, node: str) -> None:
        self._kind = kind
        self._name = name
        self._node = node
        self._over = threading.Event()
        self._step = CopyStep.CHECK
        self._total = 0
        self._bytes = DownloadMeter(0, 0)

    def begin(self, step: CopyStep, total: int = 0, missing: int | None = None) -> None:
        """Begin a step of `total` bytes, of which `missing` are to come; None: all of them."""
        self._step, self._total = step, total
        self._bytes = DownloadMeter(total, total if missing is None else missing)
        if self._over.is_set():
            self._bytes.stop()

    def add(self, count: int) -> None:
        """Count bytes of this step. Raises Stopped after `stop`."""
        self._bytes.add(max(0, count), count)

    def skip(self, count: int) -> None:
        """Count bytes that need not come, or, negative, that must come again. Raises Stopped after `stop`."""
        self._bytes.add(0, count)

    def pause(self, seconds: float) -> None:
        """Wait, for `stop` at most. Raises Stopped after it."""
        if self._over.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """Make the threads end at their next bytes."""
        self._over.set()
        self._bytes.stop()

    def now(self) -> CopyProgress:
        """Return the current progress."""
        seen = self._bytes.now()
        return CopyProgress(
            kind=self._kind,
            name=self._name,
            node=self._node,
            step=self._step,
            came_bytes=seen.came_bytes,
            total_bytes=self._total,
            bytes_per_s=seen.bytes_per_s,
            eta_s=seen.eta_s,
        )

    def end(self) -> CopyProgress:
        """Return the final progress."""
        return self.now().replace(came_bytes=self._total, done=True)
