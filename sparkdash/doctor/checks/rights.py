"""Checks of an ordinary user's rights for containers that live on; root needs none of them.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, fail, ok, warn
from sparkdash.doctor.facts import Facts

SUBUID, SUBGID = "/etc/subuid", "/etc/subgid"
LINGER = "/var/lib/systemd/linger/{user}"
ENOUGH = 65536
"""Subordinate ids that the users of an image may need (podman's tutorial on rootless use)."""


@check("rootless", "Subordinate user and group ids, without which most images do not unpack.", reads=(SUBUID, SUBGID))
def ids(facts: Facts) -> Iterator[CheckResult]:
    """Count the subordinate ids. Columns by subuid(5): name or uid, first id, count."""
    if not facts.rootless:
        yield ok("Not needed: engines run as root.")
        return
    if facts.settings.runtime != "podman":
        yield ok(f"Not needed with {facts.settings.runtime}.")
        return
    counts = {file: _count(facts.file(file), facts) for file in (SUBUID, SUBGID)}
    told = ", ".join(f"{count} in {file}" for file, count in counts.items())
    if min(counts.values()) < ENOUGH:
        add = f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {facts.path('{user}')}"
        yield fail(f"Subordinate ids: {told}; images need {ENOUGH} of each.", f"{add}; podman system migrate")
    else:
        yield ok(f"Subordinate ids: {told}.")


def _count(text: str | None, facts: Facts) -> int:
    mine = {facts.path("{user}"), facts.path("{uid}")}
    rows = [line.split(":") for line in (text or "").splitlines()]
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in mine and row[2].isdecimal())


@check("linger", "This user's containers and daemon live on after the last logout.", reads=(LINGER,))
def linger(facts: Facts) -> Iterator[CheckResult]:
    """Check lingering: otherwise logind ends the user's manager and removes /run/user with the last session."""
    if not facts.rootless:
        yield ok("Not needed: engines run as root.")
    elif facts.file(LINGER) is None:
        yield warn(f"Engines end with your last logout ({facts.path(LINGER)} is not there).", "loginctl enable-linger")
    else:
        yield ok(f"{facts.path('{user}')} lingers ({facts.path(LINGER)}).")
