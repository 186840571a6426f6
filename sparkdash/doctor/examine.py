"""Run of the checks of this box: from their names to findings.

Owns: the choice of checks, and keeping the others going when one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkdash.doctor import checks  # noqa: F401 - importing it fills the register
from sparkdash.doctor.check import CHECKS, Check
from sparkdash.doctor.choice import choose_checks, results_of
from sparkdash.doctor.facts import Facts
from sparkdash.doctor.probe import Probe
from sparkdash.domain.finding import Finding


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
