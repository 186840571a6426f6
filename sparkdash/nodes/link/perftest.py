"""Command lines of perftest (linux-rdma/perftest) and the parser of its tables.

Owns: which of its programs measure what. Must not know how they are run. Formats: perftest 4.5 (program version 6.06)
and outputs in its issues.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.domain.node import Link

WRITE_BW, SEND_BW, WRITE_LAT = "ib_write_bw", "ib_send_bw", "ib_write_lat"
SECONDS = 2
LIMIT_S = 15
"""Seconds after which coreutils' `timeout` ends a program on either box: a server without its client waits for ever."""

_VERSION = re.compile(r"Version: *(\S+)")
_GAP = r"[ \t]+"  # perftest pads its columns with both
_BANDWIDTH = re.compile(_GAP.join((r"^[ \t]*(\d+)", r"\d+", r"[\d.]+", r"([\d.]+)", r"[\d.]+[ \t]*$")), re.MULTILINE)
"""Bytes, iterations, peak, average, message rate."""
_LATENCY = re.compile(
    _GAP.join(
        (r"^[ \t]*(\d+)", r"\d+", *[r"[\d.]+"] * 2, r"([\d.]+)", *[r"[\d.]+"] * 2, r"([\d.]+)", r"[\d.]+[ \t]*$")
    ),
    re.MULTILINE,
)
"""Bytes, iterations, least, most, typical, mean, deviation, 99 %, 99.9 %."""
_NOISE = re.compile(r"^[-* ]*$|Conflicting CPU frequency|Waiting for client")


class PerftestFigures(NamedTuple):
    """Figures of one table: bytes of a message, and a rate or a latency."""

    size: int
    gbit_s: float | None = None
    latency_us: float | None = None
    latency_p99_us: float | None = None


def version_command() -> tuple[str, ...]:
    """Print perftest's version."""
    return (WRITE_BW, "--version")


def parse_version(text: str) -> str | None:
    """Parse what `version_command` prints."""
    found = _VERSION.search(text)
    return found[1] if found else None


def measure_command(
    program: str, link: Link, *, port: int, queue_pairs: int, server: str | None = None
) -> tuple[str, ...]:
    """Run one end of a test over the link's RDMA device; `server`: address of the end that waits, None for that end.

    `-x` chooses the RoCEv2 GID; perftest's own choice, index 0, is RoCEv1 on many boxes.
    """
    gid = () if link.gid_index is None else ("-x", str(link.gid_index))
    how = ("-n", "2000") if program == WRITE_LAT else ("-D", str(SECONDS), "-q", str(queue_pairs), "--report_gbits")
    return (
        "timeout", "-k", "1", str(LIMIT_S), program, "-d", link.hca or "", *gid, "-F", "-p", str(port), *how,
        *([server] if server else []),
    )  # fmt: skip


def parse_bandwidth(text: str) -> PerftestFigures | None:
    """Parse the last line of a table of `--report_gbits`; None without one."""
    rows = _BANDWIDTH.findall(text)
    return PerftestFigures(int(rows[-1][0]), gbit_s=float(rows[-1][1])) if rows else None


def parse_latency(text: str) -> PerftestFigures | None:
    """Parse the last line of ib_write_lat's table, whose figures are one way; None without one."""
    rows = _LATENCY.findall(text)
    if not rows:
        return None
    size, typical, p99 = rows[-1]
    return PerftestFigures(int(size), latency_us=float(typical), latency_p99_us=float(p99))


def complaint(outputs: Sequence[str]) -> str:
    """Last line in which perftest says what went wrong."""
    lines = [line.strip() for text in outputs for line in text.splitlines() if not _NOISE.search(line)]
    return lines[-1] if lines else "it printed nothing"


def could_not_connect(text: str) -> bool:
    """Whether the client came before the server listened."""
    return "Couldn't connect to" in text or "Unable to open file descriptor for socket connection" in text


def peer_vanished(outputs: Sequence[str]) -> bool:
    """Whether the other end stopped answering: IBV_WC_RETRY_EXC_ERR of libibverbs is status 12."""
    return any("Failed status 12" in text for text in outputs)
