"""Checks of the doctor: their results, the readings that they declare, the register of all, and their run.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict, TypeVar, Unpack

from sparkdash.catalog.catalog import nearest
from sparkdash.doctor.readings import Readings, Unreadable
from sparkdash.domain.node import Finding, Status
from sparkdash.errors import AdmissionError


class CheckResult(NamedTuple):
    """Finding without the name of its check."""

    status: Status
    evidence: str
    fix: str | None = None


def ok(evidence: str) -> CheckResult:
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


CheckFunction = Callable[[Readings], Iterator[CheckResult]]


class CheckReads(TypedDict, total=False):
    """Readings that a check declares to need; only these are read."""

    reads: tuple[str, ...]
    """Files, by glob pattern; patterns may hold names such as `{user}`."""
    runs: tuple[tuple[str, ...], ...]
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
    """Check with its subject in one sentence (`about`) and the readings that it reads."""

    name: str
    about: str
    look: CheckFunction
    reads: tuple[str, ...] = ()
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
    """Register a function as a check; `needs` are the readings that it may ask for."""

    def register(look: CheckFunction) -> CheckFunction:
        CHECKS[name] = Check(name, about, look, **needs)
        return look

    return register


C = TypeVar("C")


def choose_checks(register: Mapping[str, C], names: Iterable[str], *, listed_by: str) -> tuple[C, ...]:
    """Checks of these names, in the order of the register; all without names.

    `listed_by`: command that lists the names.

    Raises:
        AdmissionError: check_not_found.
    """
    wanted = list(names)
    refuse_unknown(wanted, register, listed_by=listed_by)
    return tuple(check for name, check in register.items() if not wanted or name in wanted)


def refuse_unknown(names: Iterable[str], known: Collection[str], *, listed_by: str) -> None:
    """Raise AdmissionError (check_not_found) for a name that is not known."""
    for name in names:
        if name not in known:
            close = nearest(name, known)
            hint = f"Did you mean {' or '.join(close)}?" if close else f"`{listed_by}` lists them."
            raise AdmissionError(f"There is no check {name!r}.", code="check_not_found", hint=hint)


def results_of(said: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Yield a check's results; a fact that could not be read, or a fault of the check itself, becomes "unknown"."""
    try:
        yield from said
    except Unreadable as why:
        yield unknown(f"{why}.")
    except Exception as error:  # noqa: BLE001 - an unforeseen file must not hide the other findings
        yield unknown(f"The check itself failed ({type(error).__name__}: {error}).")


def checks_named(names: Iterable[str]) -> tuple[Check, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    return choose_checks(CHECKS, names, listed_by="sparkdash doctor --list")


def judge(readings: Readings, chosen: Sequence[Check]) -> tuple[Finding, ...]:
    """Run these checks on these readings, without any I/O."""
    return tuple(
        Finding(name=each.name, status=said.status, evidence=said.evidence, fix=said.fix)
        for each in chosen
        for said in results_of(each.look(readings))
    )
