"""Measured links: their values, the files of runs in the state folder, and published figures to set beside them.

Anyone may delete the files; those that are no runs are left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from sparkdash import paths
from sparkdash.domain.base import Frozen
from sparkdash.domain.node import Link, NodeFacts


class LinkTool(StrEnum):
    """Program that measures."""

    PERFTEST = "perftest"
    IPERF3 = "iperf3"
    NCCL_TESTS = "nccl-tests"


class LinkMeasurement(Frozen):
    """Figure of a link: a rate or a latency."""

    tool: LinkTool
    what: str
    """Test in words, such as `ib_write_bw` or `iperf3, TCP`."""
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
    here: Link | None = None
    there: Link | None = None
    facts: dict[str, NodeFacts] = {}
    """Facts of both boxes by name."""
    measurements: tuple[LinkMeasurement, ...] = ()
    missing: dict[LinkTool, str] = {}
    """Reason of each tool that gave no figures, with what to install."""


def link_runs_dir() -> Path:
    """Folder of the measured links."""
    return paths.state_dir() / "links"


def keep_run(run: LinkRun, folder: Path | None = None) -> Path:
    """Write a run into a file of its own; return its path. Raises OSError."""
    place = folder or link_runs_dir()
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{datetime.fromtimestamp(run.at, UTC):%Y%m%d-%H%M%S}-{run.node}.json"
    path.write_text(run.model_dump_json(indent=2) + "\n", "utf-8")
    return path


def kept_runs(node: str, folder: Path | None = None) -> tuple[LinkRun, ...]:
    """Read the kept runs of a node, the oldest first."""
    found = []
    for path in sorted((folder or link_runs_dir()).glob("*.json")):
        try:
            run = LinkRun.model_validate_json(path.read_text("utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            continue
        if run.node == node:
            found.append(run)
    return tuple(found)


class PublishedLinkFigure(Frozen):
    """Figure of somebody's link: `value` in `unit`, with what it was measured by."""

    what: str
    value: str
    unit: str
    source: str


_LAB = "conselara's lab, 2026-05-03"
"""Document 001_a6d7f6e4001d6ff0.txt of the profile qwen3-235b."""

PUBLISHED_LINK_FIGURES = (
    PublishedLinkFigure(
        what="ib_write_bw, 1 queue pair, 4096 B MTU, two channels",
        value="13.35 + 13.26 = 26.6",
        unit="Gb/s",
        source=_LAB,
    ),
    PublishedLinkFigure(what="weights copied by one sync stream", value="500-580", unit="MB/s", source=_LAB),
    PublishedLinkFigure(
        what="ib_write_bw, 4 queue pairs, one RDMA device",
        value="111.7",
        unit="Gb/s",
        source="eugr/spark-vllm-docker, docs/NETWORKING.md",
    ),
    PublishedLinkFigure(
        what="TCP, MTU 1500, one interface",
        value="96",
        unit="Gb/s",
        source="catharsis.net.au, DGX Spark benchmarking",
    ),
    PublishedLinkFigure(
        what="both interfaces of a port, MTU 9000", value="160-198", unit="Gb/s", source="owners' reports"
    ),
)

WHY_PUBLISHED_IS_LOW = (
    "26.6 Gb/s is an artefact of the tool: one queue pair. Each QSFP port is two PCIe x4 links of about 100 Gb/s; both "
    "with several queue pairs and MTU 9000 give 160-198 Gb/s. 500-580 MB/s is a file copy by one stream, and no "
    "test of the link."
)
"""Note that belongs beside the first two figures. Its sources are those of the others."""
