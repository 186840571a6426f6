"""Values of a measured link, as they are kept and shown.

Owns: one measurement, and all of one run with the facts of both boxes. Must not know how anything is measured.
Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.domain.node import Link, NodeFacts


class LinkTool(StrEnum):
    """Program that measured."""

    PERFTEST = "perftest"
    TCP = "tcp"
    """Streams of plain TCP between two scripts."""
    ALL_REDUCE = "all-reduce"
    """Collective of torch.distributed, by NCCL or Gloo."""


class LinkMeasurement(Frozen):
    """Figure of a link: a rate or a latency."""

    what: str
    """Test in words, such as `ib_write_bw` or `tcp stream`."""
    source: str
    """Box that sends."""
    target: str
    streams: int = 1
    """TCP streams, or queue pairs per device."""
    devices: tuple[str, ...] = ()
    """RDMA devices of the sending box."""
    size: int | None = None
    """Bytes of one message."""
    gbit_s: float | None = None
    """Rate in 10^9 bits per second."""
    latency_us: float | None = None
    """Median time of one message, one way."""
    latency_p99_us: float | None = None
    time_us: float | None = None
    """Mean time of one collective."""


class LinkRun(Frozen):
    """Measurements of one run, with the facts of both boxes."""

    at: float
    """Start of the run, Unix seconds."""
    node: str
    tool: LinkTool
    version: str | None = None
    """Version of perftest, or of torch and NCCL."""
    why: str | None = None
    """Why this tool was used and no better one; None for the best."""
    here: Link | None = None
    there: Link | None = None
    facts: dict[str, NodeFacts] = {}
    """Facts of both boxes by name."""
    profile: str | None = None
    """Profile whose image was used."""
    measurements: tuple[LinkMeasurement, ...] = ()
