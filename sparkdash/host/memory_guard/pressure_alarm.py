"""Sleep that ends after a time, by a call, or when the kernel reports a shortage of memory.

Owns: the trigger on /proc/pressure/memory (Documentation/accounting/psi.rst) and the poll on it. Must not know the
consequences.

A trigger needs no root if its window is a multiple of 2 s (Linux 6.4 and later; others refuse it with EINVAL or EPERM).
It costs nothing while no program waits for memory. The kernel looks every 2 s, and reports 2 to 6 s after pressure
began. Without triggers or PSI only the time and the call end the sleep.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

TRIGGER = b"some 150000 2000000\0"
"""Trigger: some program waited for memory for 150 ms within 2 s."""


def open_trigger(pressure: Path) -> int | None:
    """Open a descriptor with POLLPRI at each pressure, at most once in 2 s; None if the kernel refuses it."""
    try:
        if pressure.stat().st_size:  # a file on a disk, which must not be overwritten
            return None
        descriptor = os.open(pressure, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.write(descriptor, TRIGGER)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class PressureAlarm:
    """Interruptible sleep of one thread, which any thread may wake. Closes `trigger` with itself."""

    def __init__(self, trigger: int | None) -> None:
        self._trigger = trigger
        self._call = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._call, select.POLLIN)
        if trigger is not None:
            self._poll.register(trigger, select.POLLPRI)

    @property
    def has_trigger(self) -> bool:
        """Whether the kernel reports pressure."""
        return self._trigger is not None

    def wait(self, seconds: float) -> bool:
        """Sleep; return whether the kernel reported pressure meanwhile."""
        pressed = False
        for descriptor, events in self._poll.poll(seconds * 1000):
            if descriptor == self._call:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._call)
            elif events & select.POLLPRI:
                pressed = True
            else:  # the trigger failed: only the time is left
                self._drop()
        return pressed

    def call(self) -> None:
        """Wake the sleeper, or cut its next sleep short."""
        with suppress(BlockingIOError):
            os.eventfd_write(self._call, 1)

    def close(self) -> None:
        """Close both descriptors, while no thread sleeps."""
        self._drop()
        os.close(self._call)

    def _drop(self) -> None:
        if self._trigger is not None:
            self._poll.unregister(self._trigger)
            os.close(self._trigger)
            self._trigger = None
