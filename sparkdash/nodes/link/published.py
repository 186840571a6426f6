"""Published figures of the link between two DGX Sparks, to set beside measured ones.

Owns: each figure with its conditions and its source. Must not know how anything is measured.
Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen


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
