"""Findings of `sparkdash doctor` about the box and other nodes.

Pure.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen


class Status(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing need be done."""
    UNKNOWN = "unknown"
    """The check could not read what it needs."""
    WARN = "warn"
    """Engines run, but slower, or not for long, or not after the next logout."""
    FAIL = "fail"
    """Engines will not start, or sparkdash itself will not."""


class Finding(Frozen):
    """Result of one check. `evidence` names what was read and where; `fix` is one line that repairs it."""

    name: str
    status: Status
    evidence: str
    fix: str | None = None


class NodeFinding(Finding):
    """Result of a check of one node, or of a pair of them. `fix` is typed on this box."""

    nodes: tuple[str, ...]
    """Names of the nodes that it is about; this box is LOCAL."""


class Diagnosis(Frozen):
    """All findings of the doctor, in the order of its checks."""

    findings: tuple[Finding, ...]
