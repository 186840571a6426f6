"""Figures of this node, a JSON line per tick, until stdin closes.

Runs on nodes, with the standard library of Python 3.10 alone: nothing is installed there.

Lines that are read: {"every": seconds, "id": number, "lease": {…}, "read": [names of reports], "probe": [[own address,
peer's address], …]}, all but `every` optional. Each is answered by a tick at once, with its `id`.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkdash.host.kernel_figures import Interfaces, RdmaPorts, read_memory
from sparkdash.host.nvml_device import NvmlDevice
from sparkdash.host.processes.proc import host_bytes
from sparkdash.nodes.agent.engine_processes import EngineProcesses, is_held
from sparkdash.nodes.agent.guard_files import GuardFolder, seconds_since_boot

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkdash.host.kernel_figures import Figures

SILENCE_S = 90.0
"""Time without a line after which the daemon or the link is gone: a broken link closes stdin only after minutes."""
SCAN_S = 5.0
"""Interval of the search for engines' processes, and of the look whether the guard runs."""
FIRST_S = 5.0
"""Interval of ticks until the daemon asks for another."""
COMMAND_LIMIT = 256 * 1024


GPU_WAIT_S, GPU_FIRST_S = 0.3, 1.2
"""Longest wait of a tick for the driver; a reading takes a few milliseconds, and the first one loads the library."""
GPU_AGAIN_S = 60.0
"""Pause before a missing or lost driver is tried again."""


class GpuReader:
    """GPU of this node, read in a thread of its own. Only tests give `open_device`."""

    def __init__(self, open_device: Callable[[], NvmlDevice] = NvmlDevice) -> None:
        self._open = open_device
        self._device: NvmlDevice | None = None
        self._tried_at = float("-inf")
        self._thread: threading.Thread | None = None
        self._found: Figures | None = None

    def read(self, now: float) -> Figures | None:
        """Return the GPU's figures, with `processes`; None without a GPU, and while an earlier call hangs."""
        if self._thread is not None and self._thread.is_alive():
            return None
        first = self._device is None
        if first and now - self._tried_at < GPU_AGAIN_S:
            return None
        self._found, self._tried_at = None, now
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self._thread.join(GPU_FIRST_S if first else GPU_WAIT_S)
        return None if self._thread.is_alive() else self._found

    def _work(self) -> None:
        try:
            device = self._device = self._device or self._open()
            self._found = {**device.gpu(), "processes": device.processes() or {}}
        except OSError:
            if self._device is not None:
                self._device.close()
            self._device = None


DISCARD = 9
"""TCP port of the discard protocol, which no box of today offers: its refusal is the answer of a box that is there."""
PROBE_S = 1.5
"""Time for the answer of a box. A link answers within milliseconds, and a first lost packet is sent again after 1 s."""
SEEN = 30
"""Answers of a peer among which losses are counted."""
TOTAL_RETRANS = 100
"""Offset of tcpi_total_retrans in the kernel's struct tcp_info."""


class Probes:
    """Probes: which peers answer over which own address. A later look judges the connection that one began."""

    def __init__(self, every_s: float = SCAN_S) -> None:
        self.wanted: list[tuple[str, str]] = []
        self.reached: dict[str, int | None] = {}
        """For each peer's address the losses among its last answers; None where the last probe had no answer."""
        self._every_s = every_s
        self._losses: dict[str, deque[bool]] = {}
        """Whether a packet was sent again, for the last answers of each peer."""
        self._open: dict[tuple[str, str], tuple[socket.socket, float]] = {}
        self._begun_at = float("-inf")

    def __del__(self) -> None:
        for connection, _ in self._open.values():
            connection.close()

    def look(self, now: float) -> dict[str, int | None]:
        for pair, (connection, since) in list(self._open.items()):
            if select.select([], [connection], [], 0)[1]:
                self._judge(pair, connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            elif now - since >= PROBE_S:
                self._judge(pair, errno.ETIMEDOUT)
        if now - self._begun_at >= self._every_s:
            self._begun_at = now
            for pair in self.wanted:
                if pair not in self._open:
                    self._begin(pair, now)
        peers = {peer for _, peer in self.wanted}
        for known in (self.reached, self._losses):
            for gone in known.keys() - peers:
                del known[gone]
        return self.reached

    def _begin(self, pair: tuple[str, str], now: float) -> None:
        connection = socket.socket(socket.AF_INET6 if ":" in pair[1] else socket.AF_INET)
        connection.setblocking(False)
        self._open[pair] = connection, now
        try:
            connection.bind((pair[0], 0))
            code = connection.connect_ex((pair[1], DISCARD))
        except OSError as error:
            code = error.errno or errno.EINVAL
        if code != errno.EINPROGRESS:
            self._judge(pair, code)

    def _judge(self, pair: tuple[str, str], code: int) -> None:
        peer, lost = pair[1], None
        with self._open.pop(pair)[0] as connection:
            if code in (0, errno.ECONNREFUSED, errno.ECONNRESET):
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANS + 4)
                losses = self._losses.setdefault(peer, deque(maxlen=SEEN))
                losses.append(any(info[TOTAL_RETRANS:]))
                lost = sum(losses)
        self.reached[peer] = lost


class Ticker:
    """Figures of this node."""

    def __init__(self, owner: str) -> None:
        self._interfaces, self._rdma = Interfaces(), RdmaPorts()
        self._processes, self._gpu = EngineProcesses(owner), GpuReader()
        self._probes = Probes()
        self._engines: dict[str, dict[int, int]] = {}
        self._scanned_at = float("-inf")
        self._folder: GuardFolder | None = None
        self._guarded = False
        with suppress(OSError):
            self._folder = GuardFolder(owner)

    def tick(self) -> Figures:
        now = seconds_since_boot()
        if now - self._scanned_at >= SCAN_S:
            self._scanned_at = now
            self._engines = self._processes.scan(now)
            self._guarded = self._folder is not None and self._folder.is_locked()
        gpu = self._gpu.read(now)
        on_gpu = gpu.pop("processes") if gpu else {}
        return {
            "clock": time.time(),
            "at": now,
            "memory": read_memory(),
            "gpu": gpu,
            "interfaces": self._interfaces.read(now),
            "rdma": self._rdma.read(now),
            "engines": {name: self._bytes(pids, on_gpu) for name, pids in self._engines.items()},
            "held": [name for name, pids in self._engines.items() if any(map(is_held, pids))],
            "reached": self._probes.look(now),
            "guarded": self._guarded,
            "kills": self._folder.kills() if self._folder else [],
        }

    def obey(self, command: dict[str, Any]) -> None:
        """Write the lease, remove reports that the daemon has read, and note which peers it wants probed."""
        pairs = command.get("probe")
        self._probes.wanted = [(str(own), str(peer)) for own, peer in pairs or ()]
        if self._folder is None:
            return
        with suppress(OSError):
            if isinstance(command.get("lease"), dict):
                self._folder.renew(command["lease"])
                self._guarded = self._folder.is_locked()
            for name in command.get("read") or ():
                self._folder.forget_kill(str(name))

    def _bytes(self, pids: dict[int, int], on_gpu: dict[int, int | None]) -> int:
        """Memory of a container: the processes' own host memory, and GPU memory by the driver."""
        return sum((host_bytes(pid) or 0) + (on_gpu.get(pid) or 0) for pid in pids)


class _DaemonInput:
    def __init__(self) -> None:
        self._pending = b""
        self._heard_at = time.monotonic()

    def read_until(self, due: float) -> list[dict[str, Any]] | None:
        """Wait for commands, until `due` at most; None at the end of the input, or after too long a silence or line."""
        while select.select([0], [], [], max(due - time.monotonic(), 0.0))[0]:
            chunk = os.read(0, 65536)
            self._heard_at = time.monotonic()
            if not chunk:
                return None
            *lines, self._pending = (self._pending + chunk).split(b"\n")
            commands = [found for line in lines if (found := _command(line)) is not None]
            if commands:
                return commands
            if len(self._pending) > COMMAND_LIMIT:
                return None
        return None if time.monotonic() - self._heard_at > SILENCE_S else []


def main(owner: str) -> None:
    ticker, stdin = Ticker(owner), _DaemonInput()
    every, due = FIRST_S, time.monotonic()
    while (commands := stdin.read_until(due)) is not None:
        answer: object = None
        for command in commands:
            ticker.obey(command)
            every, answer = max(0.2, float(command.get("every") or every)), command.get("id", answer)
        due = time.monotonic() + every
        tick = ticker.tick()
        tick["id"] = answer
        sys.stdout.write(json.dumps(tick, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def _command(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
        float(found.get("every") or 0)
    except (ValueError, TypeError, AttributeError):
        return None
    return dict(found)


def run(owner: str) -> None:
    """Run until the end, and leave without waiting for a driver that hangs."""
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main(owner)
    os._exit(0)
