"""Checks of the doctor: their results, the facts that they declare, and the register of all.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, Unpack

from sparkdash.doctor.facts import Facts
from sparkdash.domain.node import Status


class CheckResult(NamedTuple):
    """Finding without the name of its check."""

    status: Status
    evidence: str
    fix: str | None = None


def ok(evidence: str) -> CheckResult:
    """Report that all is well."""
    return CheckResult(Status.OK, evidence)


def note(evidence: str, fix: str | None = None) -> CheckResult:
    """Report a fact worth knowing, which harms nothing."""
    return CheckResult(Status.NOTE, evidence, fix)


def unknown(evidence: str, fix: str | None = None) -> CheckResult:
    """Report that the check could not be decided."""
    return CheckResult(Status.UNKNOWN, evidence, fix)


def warn(evidence: str, fix: str) -> CheckResult:
    """Report a fault that will hurt sooner or later."""
    return CheckResult(Status.WARN, evidence, fix)


def fail(evidence: str, fix: str) -> CheckResult:
    """Report a fault that keeps engines from running."""
    return CheckResult(Status.FAIL, evidence, fix)


CheckFunction = Callable[[Facts], Iterator[CheckResult]]


class CheckReads(TypedDict, total=False):
    """Facts that a check declares to need; only these are read."""

    reads: tuple[str, ...]
    """Files, by glob pattern; patterns may hold names such as `{user}`."""
    modes: tuple[str, ...]
    """Paths whose permissions are read, and whose content is not."""
    runs: tuple[tuple[str, ...], ...]
    """Commands."""
    disks: tuple[str, ...]
    """Paths whose file system is measured."""
    listeners: bool
    gpu: bool
    profiles: bool
    loads: bool
    account: bool
    """The account of the box's memory."""
    kernel: bool
    """The kernel's log of the last day."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check with its subject in one sentence (`about`) and the facts that it reads."""

    name: str
    about: str
    look: CheckFunction
    reads: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()
    disks: tuple[str, ...] = ()
    listeners: bool = False
    gpu: bool = False
    profiles: bool = False
    loads: bool = False
    account: bool = False
    kernel: bool = False


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order of the report."""


def check(name: str, about: str, **needs: Unpack[CheckReads]) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as a check; `needs` are the facts that it may ask for."""

    def register(look: CheckFunction) -> CheckFunction:
        CHECKS[name] = Check(name, about, look, **needs)
        return look

    return register
