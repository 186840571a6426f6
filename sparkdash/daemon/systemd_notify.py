"""Notifications to systemd about the daemon's state: the needed part of sd_notify(3).

Owns: NOTIFY_SOCKET and WATCHDOG_USEC, read once and removed from the environment: podman would use them too, and
systemd would take a container's monitor for the daemon. Without them nothing is sent. Must not know the daemon's
parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from array import array
from collections.abc import Awaitable, MutableMapping, Sequence
from dataclasses import dataclass

MICRO = 1e-6
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True, slots=True)
class Notifier:
    """Address of systemd's socket and the watchdog's time; None without systemd, or without a watchdog."""

    address: str | None = None
    watchdog_s: float | None = None

    def tell(self, *words: str, descriptors: Sequence[int] = ()) -> None:
        """Send words such as "READY=1" and descriptors, in one datagram. Never fails without systemd."""
        if self.address is None:
            return
        # a leading @ is an abstract socket's NUL; never wait: a full queue is systemd's own trouble
        where = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            # not socket.send_fds, which drops the address
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            sender.sendmsg(["\n".join(words).encode()], rights, 0, where)

    async def attend(self, stopping: Awaitable[object], status: str) -> None:
        """Send READY now, WATCHDOG while the event loop runs, STOPPING when `stopping` is done.

        The loop itself sends the pings: a stuck loop sends none, and systemd restarts the daemon.
        """
        self.tell("READY=1", f"STATUS={status}")
        pinging = None if self.watchdog_s is None else asyncio.ensure_future(self._ping(self.watchdog_s / 2))
        try:
            await stopping
        finally:
            if pinging is not None:
                pinging.cancel()
            self.tell("STOPPING=1")

    async def _ping(self, every_s: float) -> None:
        while True:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(every_s)


def notifier_from_environment(environ: MutableMapping[str, str] = os.environ) -> Notifier:
    """Read systemd's variables and remove them, so that no child inherits them."""
    address, usec, pid = (environ.pop(name, None) for name in _VARIABLES)
    ours = pid is None or pid == str(os.getpid())
    watchdog_s = int(usec) * MICRO if usec and usec.isdecimal() and ours else None
    return Notifier(address or None, watchdog_s or None)
