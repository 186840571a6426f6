"""Errors of a copy, as people read them: what the receiver refused, and what a broken connection left.

Owns: codes and words. Must not know how bytes are sent.
Pure.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from sparkdash.errors import HostError
from sparkdash.units import size

RESUMES = "What arrived is kept there: the same command goes on where this one ended."

_FULL = (errno.ENOSPC, errno.EDQUOT)


def disk_full(node: str, place: str, needs: int, free: int) -> HostError:
    """Error of a disk that has not the room."""
    return HostError(
        f"{size(needs)} are to be written to {place} on {node}, and its disk has {size(free)} free.",
        code="disk_full",
        hint=f"Free {size(max(0, needs - free))} there, and run it again.",
    )


def is_full(facts: Mapping[str, Any]) -> bool:
    """Whether a refusal says that the disk is full."""
    return facts.get("errno") in _FULL


def refused(node: str, what: str, root: str, facts: Mapping[str, Any]) -> HostError:
    """Turn a refusal of the receiver into an error."""
    error, name = facts.get("error"), str(facts.get("name") or "")
    if error == "damaged":
        return HostError(
            f"A file of {what} arrived damaged on {node} and was deleted there.",
            code="copy_damaged",
            hint="Run the same command again. If it happens again, check the link and the memory of both boxes.",
        )
    if error == "busy":
        return HostError(
            f"Another program is copying {what} to {node}.",
            code="copy_busy",
            hint="Wait for it, or end it and run this again: nothing is sent twice.",
        )
    if error == "bad_name":
        return HostError(
            f"{node} refuses {name!r} of {what}: {facts.get('why')}.",
            code="copy_refused",
            hint=f"Look at {root} on {node}, and rename or remove what is in the way.",
        )
    if error == "os":
        return HostError(
            f"{node} cannot write {what} to {root}: {facts.get('why')}{_at(facts.get('path'))}.",
            code="copy_refused",
            hint=f"The user that sparkdash logs in as on {node} must be able to write there.",
        )
    return HostError(f"{node} did not understand: {error}.", code="copy_failed", hint="Update sparkdash on this box.")


def _at(path: object) -> str:
    return f" ({path})" if path else ""


def link_lost(node: str, what: str, code: int | None, words: str) -> HostError:
    """Error of a connection that broke, or could not be made."""
    last = words.splitlines()[-1].strip() if words else f"ssh ended with {code}"
    if "python3" in words and ("not found" in words or "No such file" in words):
        return HostError(
            f"{node} has no python3, which receives the files.", code="copy_failed", hint="Install python3 there."
        )
    return HostError(
        f"The connection to {node} broke while {what} was copied: {last.rstrip('.')}.",
        code="node_unreachable",
        hint=RESUMES,
    )
