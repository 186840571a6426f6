"""Run of the checks of this box: from their names to findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from sparkdash.catalog.catalog import nearest
from sparkdash.doctor import checks  # noqa: F401 - importing it fills the register
from sparkdash.doctor.check import CHECKS, Check, CheckResult, unknown
from sparkdash.doctor.facts import Facts, UnreadFact
from sparkdash.doctor.probe import Probe
from sparkdash.domain.node import Finding
from sparkdash.errors import AdmissionError

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
    except UnreadFact as why:
        yield unknown(f"{why}.")
    except Exception as error:  # noqa: BLE001 - an unforeseen file must not hide the other findings
        yield unknown(f"The check itself failed ({type(error).__name__}: {error}).")


async def examine(probe: Probe, names: Iterable[str] = ()) -> tuple[Finding, ...]:
    """Read the box and run all checks, or those named.

    Raises:
        AdmissionError: no check has that name.
    """
    chosen = checks_named(names)
    return judge(await probe.look(chosen), chosen)


def checks_named(names: Iterable[str]) -> tuple[Check, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    return choose_checks(CHECKS, names, listed_by="sparkdash doctor --list")


def judge(facts: Facts, chosen: Sequence[Check]) -> tuple[Finding, ...]:
    """Run these checks on these facts, without any I/O."""
    return tuple(
        Finding(name=each.name, status=said.status, evidence=said.evidence, fix=said.fix)
        for each in chosen
        for said in results_of(each.look(facts))
    )
