"""Run of the doctor: from the names of checks to their findings.

Owns: the choice of checks, and keeping the others going when one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkdash.catalog.catalog import nearest
from sparkdash.doctor import checks  # noqa: F401 - importing it fills the register
from sparkdash.doctor.check import CHECKS, Check, CheckResult, unknown
from sparkdash.doctor.facts import Facts, UnreadFact
from sparkdash.doctor.probe import Probe
from sparkdash.domain.finding import Finding
from sparkdash.errors import AdmissionError


async def examine(probe: Probe, names: Iterable[str] = ()) -> tuple[Finding, ...]:
    """Read the box and run all checks, or those named.

    Raises:
        AdmissionError: no check has that name.
    """
    chosen = checks_named(names)
    return judge(await probe.look(chosen), chosen)


def checks_named(names: Iterable[str]) -> tuple[Check, ...]:
    """Checks of these names, in the order of the register; all without names. Raises AdmissionError."""
    wanted = list(names)
    for name in wanted:
        if name not in CHECKS:
            close = nearest(name, CHECKS)
            hint = f"Did you mean {' or '.join(close)}?" if close else "`sparkdash doctor --list` lists them."
            raise AdmissionError(f"There is no check {name!r}.", code="check_not_found", hint=hint)
    return tuple(each for each in CHECKS.values() if not wanted or each.name in wanted)


def judge(facts: Facts, chosen: Sequence[Check]) -> tuple[Finding, ...]:
    """Run these checks on these facts, without any I/O."""
    return tuple(
        Finding(name=each.name, status=said.status, evidence=said.evidence, fix=said.fix)
        for each in chosen
        for said in _said(each, facts)
    )


def _said(each: Check, facts: Facts) -> Iterator[CheckResult]:
    try:
        yield from each.look(facts)
    except UnreadFact as why:
        yield unknown(f"{why}.")
    except Exception as error:  # noqa: BLE001 - an unforeseen file must not hide the other findings
        yield unknown(f"The check itself failed ({type(error).__name__}: {error}).")
