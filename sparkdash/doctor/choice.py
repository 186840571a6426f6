"""Choice of checks by name, and their run without one fault hiding the others.

Owns: both, for every register of checks. Must not know any check, or what is examined.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from sparkdash.catalog.catalog import nearest
from sparkdash.doctor.check import CheckResult, unknown
from sparkdash.doctor.facts import UnreadFact
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
