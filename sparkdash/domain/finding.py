"""Finding: one thing that `doctor` says about the box."""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen


class Status(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing need be done."""
    UNKNOWN = "unknown"
    """What the check needs could not be read."""
    WARN = "warn"
    """Engines run, but slower, or not for long, or not after the next logout."""
    FAIL = "fail"
    """Engines will not start, or sparkdash itself will not."""


class Finding(Frozen):
    """What one check found. `evidence` says what was read and where; `fix` is one line that mends it."""

    name: str
    status: Status
    evidence: str
    fix: str | None = None


class Diagnosis(Frozen):
    """All that the doctor found, in the order of its checks."""

    findings: tuple[Finding, ...]
