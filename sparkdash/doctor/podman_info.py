"""PURE: what `podman info` says, as far as the checks need it. Shapes: podman 4.3.1 run here, 4.9 and 5 from their documentation."""

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
    """podman's own words. Empty text where it does not tell."""

    version: str
    graph_root: str
    graph_driver: str
    oci_runtime: str
    network: str


def read(done: CommandResult) -> PodmanInfo | None:
    """From a finished COMMAND; None when it failed or is not JSON."""
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
    """What stands at the end of this way; empty when it is not there, or is no text."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def of(facts: Facts) -> PodmanInfo:
    """Podman's words on this box. Raises Unread when it has none, which the check `podman` tells of."""
    done = facts.ran(COMMAND)
    if done is None:
        raise UnreadFact("There is no podman to ask")
    if (info := read(done)) is None:
        raise UnreadFact("`podman info` fails, see the check podman")
    return info


def numbers(version: str) -> tuple[int, ...]:
    """ "4.9.3" -> (4, 9, 3); what follows the first three numbers is dropped. Empty when there are none."""
    return tuple(int(number) for number in _NUMBERS.findall(version)[:3])
