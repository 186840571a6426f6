"""Kernel figures of a box: memory, network interfaces, RDMA ports.

Standard library alone, Python 3.10: this box reads its figures by this module, and `nodes.programs` ships it to others.
Rule: cheap (small reads, no subprocess, no driver), as the memory guard must work when all else hangs.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkdash.host.guard_rules import GuardReading

PROC = "/proc"
SYS = "/sys/class"
NET_LIMIT = 32
"""Most interfaces that are read, as a box with many containers has hundreds."""
SLOW_S = 10.0
"""Validity of what rarely changes: the list of ports, and speeds, for which some drivers take a lock of the kernel."""
OCTETS = 4
"""Octets in one unit of an RDMA port's data counters (Linux, Documentation/ABI/stable/sysfs-class-infiniband)."""

if TYPE_CHECKING:
    Figures = dict[str, Any]


def read_text(path: str) -> str | None:
    """Read a small file; None if the kernel refuses it."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return None


def read_int(path: str) -> int | None:
    """Read a file with one whole number; None if it has none."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo: bytes by the kernel's own names, or plain counts where it gives no unit."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found


def read_meminfo(proc: str = PROC) -> dict[str, int]:
    """Read /proc/meminfo; empty without the file."""
    return parse_meminfo(read_text(proc + "/meminfo") or "")


def read_memory(proc: str = PROC) -> Figures | None:
    """Read memory in bytes, with the names of `Memory`; None without the kernel's figures."""
    found = read_meminfo(proc)
    if not {"MemTotal", "MemAvailable", "MemFree"} <= found.keys():
        return None
    cache, swap = None, found.get("SwapTotal")
    if "Cached" in found:  # it includes shared memory (not reclaimable) and excludes reclaimable slab
        cache = max(found["Cached"] + found.get("SReclaimable", 0) - found.get("Shmem", 0), 0)
    return {
        "total": found["MemTotal"],
        "available": found["MemAvailable"],
        "free": found["MemFree"],
        "page_cache": cache,
        "swap_total": swap,
        "swap_used": swap - found["SwapFree"] if swap is not None and "SwapFree" in found else None,
        "pressure": _pressure(read_text(proc + "/pressure/memory") or ""),
    }


def _pressure(text: str) -> float | None:
    """Parse PSI "full avg10" as a share of time; None if the kernel was built or booted without PSI."""
    _, found, rest = text.partition("full avg10=")
    try:
        return float(rest.split(None, 1)[0]) / 100 if found else None
    except (ValueError, IndexError):
        return None


class MemoryFiles:
    """Available memory and pressure, from files that stay open: a box short of memory may open none."""

    def __init__(self, proc: str) -> None:
        """Raises OSError without /proc/meminfo."""
        self._meminfo = os.open(proc + "/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        self._pressure = open_optional(proc + "/pressure/memory")

    def look(self) -> GuardReading:
        """Read both. Raises OSError, ValueError."""
        available, pressure = self.figure(b"MemAvailable:"), None
        if self._pressure is not None:
            with suppress(OSError):
                pressure = _pressure(os.pread(self._pressure, 512, 0).decode())
        return GuardReading(time.monotonic(), available, pressure)

    def figure(self, name: bytes) -> int:
        """Read one figure of /proc/meminfo in bytes. Raises OSError, ValueError."""
        _, found, rest = os.pread(self._meminfo, 4096, 0).partition(name)
        if not found:
            raise ValueError(name.decode() + " is missing")
        return int(rest.split(None, 1)[0]) * 1024

    def close(self) -> None:
        for descriptor in (self._meminfo, self._pressure):
            if descriptor is not None:
                os.close(descriptor)


def open_optional(path: str) -> int | None:
    """Open a file that the kernel may lack."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


class Interfaces:
    """Network interfaces, without loopback, bridges and their ports."""

    def __init__(self, proc: str = PROC, sys: str = SYS) -> None:
        self._proc, self._sys = proc, sys
        self._known: dict[str, tuple[int, int | None] | None] = {}
        """Index and speed in Mb/s of each interface; None for one that is left out."""
        self._known_at = float("-inf")

    def read(self, now: float) -> list[Figures]:
        """Read counters, carrier and speed of each interface; `now` is monotonic seconds."""
        if now - self._known_at >= SLOW_S:
            self._known, self._known_at = {}, now
        found = []
        for line in (read_text(self._proc + "/net/dev") or "").splitlines()[2:]:
            name, _, rest = line.partition(":")
            figures = self._interface(name.strip(), rest.split())
            if figures:
                found.append(figures)
        return found[:NET_LIMIT]

    def _interface(self, name: str, words: list[str]) -> Figures | None:
        if name not in self._known:
            self._known[name] = self._facts(name)
        facts = self._known[name]
        if facts is None or len(words) < 11:
            return None
        carrier = read_int(self._sys + "/net/" + name + "/carrier")  # an interface that is off refuses to tell
        return {
            "name": name,
            "index": facts[0],
            "received": int(words[0]),
            "sent": int(words[8]),
            "errors": int(words[2]) + int(words[10]),
            "up": carrier == 1,
            "gbit": None if facts[1] is None else facts[1] / 1000,
        }

    def _facts(self, name: str) -> tuple[int, int | None] | None:
        folder = self._sys + "/net/" + name
        index = read_int(folder + "/ifindex")
        if name == "lo" or index is None or os.path.exists(folder + "/bridge") or os.path.exists(folder + "/brport"):
            return None
        speed = read_int(folder + "/speed")
        return index, speed if speed is not None and speed > 0 else None


class RdmaPorts:
    """RDMA ports that are or were active. TCP's counters do not see their traffic."""

    def __init__(self, sys: str = SYS) -> None:
        self._root = sys + "/infiniband"
        self._ports: list[tuple[str, str]] = []
        self._listed_at = float("-inf")
        self._were_active: set[str] = set()

    def read(self, now: float) -> list[Figures]:
        """Read counters, state and rate of each port; `now` is monotonic seconds."""
        if now - self._listed_at >= SLOW_S:
            self._ports, self._listed_at = self._list(), now
        return [figures for name, folder in self._ports for figures in self._port(name, folder)]

    def _list(self) -> list[tuple[str, str]]:
        found = []
        for device in _names(self._root):
            for port in _names(self._root + "/" + device + "/ports"):
                name = device if port == "1" else device + "/" + port
                found.append((name, self._root + "/" + device + "/ports/" + port))
        return found[:NET_LIMIT]

    def _port(self, name: str, folder: str) -> list[Figures]:
        active = "ACTIVE" in (read_text(folder + "/state") or "")
        if active:
            self._were_active.add(name)
        elif name not in self._were_active:
            return []
        counters = folder + "/counters/"
        wrong = [read_int(counters + each) for each in ("port_rcv_errors", "port_xmit_discards")]
        known = [count for count in wrong if count is not None]
        rate = (read_text(folder + "/rate") or "").split()
        return [
            {
                "name": name,
                "unit": OCTETS,
                "received": read_int(counters + "port_rcv_data"),
                "sent": read_int(counters + "port_xmit_data"),
                "errors": sum(known) if known else None,
                "up": active,
                "gbit": _number(rate[0]) if rate else None,
            }
        ]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
