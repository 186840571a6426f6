"""PURE: what a check is, and the register of all of them.

Owns: the words in which a check says what it found, and what it declares to need. Must not know any check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sparkdash.doctor.facts import Facts
from sparkdash.domain.finding import Status


class CheckResult(NamedTuple):
    """A finding without its check's name."""

    status: Status
    evidence: str
    fix: str | None = None


def ok(evidence: str) -> CheckResult:
    """As it should be."""
    return CheckResult(Status.OK, evidence)


def note(evidence: str, fix: str | None = None) -> CheckResult:
    """Worth knowing."""
    return CheckResult(Status.NOTE, evidence, fix)


def unknown(evidence: str, fix: str | None = None) -> CheckResult:
    """Could not be told."""
    return CheckResult(Status.UNKNOWN, evidence, fix)


def warn(evidence: str, fix: str) -> CheckResult:
    """Will hurt sooner or later."""
    return CheckResult(Status.WARN, evidence, fix)


def fail(evidence: str, fix: str) -> CheckResult:
    """Keeps engines from running."""
    return CheckResult(Status.FAIL, evidence, fix)


Look = Callable[[Facts], Iterator[CheckResult]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `about` in one sentence, and all that it may ask Facts for. Only what is asked for is read."""

    name: str
    about: str
    look: Look
    reads: tuple[str, ...] = ()
    """Files, by glob pattern; they may hold names such as `{user}`."""
    modes: tuple[str, ...] = ()
    """Things whose permissions are looked at, and whose content is not."""
    runs: tuple[tuple[str, ...], ...] = ()
    disks: tuple[str, ...] = ()
    """Places whose file system is measured."""
    listeners: bool = False
    gpu: bool = False
    profiles: bool = False
    loads: bool = False
    account: bool = False
    """Who holds the box's memory."""
    kernel: bool = False
    """Whether the kernel's log of the last day is read."""


CHECKS: dict[str, Check] = {}
"""By name, in the order in which they are told."""


def check(
    name: str,
    about: str,
    *,
    reads: tuple[str, ...] = (),
    modes: tuple[str, ...] = (),
    runs: tuple[tuple[str, ...], ...] = (),
    disks: tuple[str, ...] = (),
    listeners: bool = False,
    gpu: bool = False,
    profiles: bool = False,
    loads: bool = False,
    account: bool = False,
    kernel: bool = False,
) -> Callable[[Look], Look]:
    """Register a function as a check."""

    def register(look: Look) -> Look:
        CHECKS[name] = Check(
            name, about, look, reads, modes, runs, disks, listeners, gpu, profiles, loads, account, kernel
        )
        return look

    return register
