"""Sleeping until the time is over, somebody calls, or the kernel says that memory is short.

Owns: the trigger on /proc/pressure/memory (Documentation/accounting/psi.rst) and the poll on it. Must not know what
follows.

A trigger needs no root where its window is a multiple of 2 s (Linux 6.4 and later; others refuse it with EINVAL or EPERM).
It costs nothing while no program waits for memory. The kernel looks every 2 s: 2 to 6 s after pressure began it has told. A kernel without it, or without PSI, leaves the time and the call.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

TRIGGER = b"some 150000 2000000\0"
"""Some program waited for memory for 150 ms within 2 s."""


def open_trigger(pressure: Path) -> int | None:
    """A descriptor that tells POLLPRI at each pressure, at most once in 2 s; None where the kernel refuses it."""
    try:
        if pressure.stat().st_size:  # a file on a disk, which would be written over
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
    """One sleeper, whom any thread may call. `trigger` is closed with it."""

    def __init__(self, trigger: int | None) -> None:
        self._trigger = trigger
        self._call = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._call, select.POLLIN)
        if trigger is not None:
            self._poll.register(trigger, select.POLLPRI)

    @property
    def has_trigger(self) -> bool:
        """Whether the kernel tells of pressure."""
        return self._trigger is not None

    def wait(self, seconds: float) -> bool:
        """Sleep; whether the kernel told of pressure meanwhile."""
        pressed = False
        for descriptor, events in self._poll.poll(seconds * 1000):
            if descriptor == self._call:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._call)
            elif events & select.POLLPRI:
                pressed = True
            else:  # it broke: without it the sleeper goes by the time
                self._drop()
        return pressed

    def call(self) -> None:
        """Wake the sleeper, or keep it from sleeping the next time."""
        with suppress(BlockingIOError):
            os.eventfd_write(self._call, 1)

    def close(self) -> None:
        """Let go of both. Nobody may sleep any more."""
        self._drop()
        os.close(self._call)

    def _drop(self) -> None:
        if self._trigger is not None:
            self._poll.unregister(self._trigger)
            os.close(self._trigger)
            self._trigger = None
