"""Parser of `podman info`, as far as the checks need it.

Owns: the shape of that answer: podman 4.3.1 as run here, 4.9 and 5 from their documentation. Must not know how it is
run.

Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from sparkdash.doctor.facts import Facts, UnreadFact
from sparkdash.host.command import CommandResult

COMMAND = ("podman", "info", "--format", "json")

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class PodmanInfo:
    """Facts that `podman info` prints; empty text for a missing one."""

    version: str
    graph_root: str
    graph_driver: str
    oci_runtime: str
    network: str


def parse_podman_info(done: CommandResult) -> PodmanInfo | None:
    """Parse the result of COMMAND; None if it failed or is no JSON."""
    try:
        found = json.loads(done.out) if not done.code else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return PodmanInfo(
        version=_text(found, "version", "Version"),
        graph_root=_text(found, "store", "graphRoot"),
        graph_driver=_text(found, "store", "graphDriverName"),
        oci_runtime=_text(found, "host", "ociRuntime", "name"),
        network=_text(found, "host", "networkBackend"),
    )


def _text(found: object, *keys: str) -> str:
    """Text at the end of a path of keys; empty if it is missing or no text."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def podman_info_of(facts: Facts) -> PodmanInfo:
    """Return podman's facts on this box. Raises UnreadFact without them, which the check `podman` reports."""
    done = facts.ran(COMMAND)
    if done is None:
        raise UnreadFact("podman is not installed")
    if (info := parse_podman_info(done)) is None:
        raise UnreadFact("`podman info` fails, see the check podman")
    return info


def version_numbers(version: str) -> tuple[int, ...]:
    """Parse a version: "4.9.3" -> (4, 9, 3). Keeps the first three numbers; empty without any."""
    return tuple(int(number) for number in _NUMBERS.findall(version)[:3])
