"""Repair words: messages about stuck engines in requests, notices and failures.

Owns: their texts. Must not know when they are shown.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.incident import Incident, IncidentEnd
from sparkdash.units import duration

MOVED = "It moved again by itself."
LEFT = "Its requests had left, and nothing was done."
RECOVERED = "It worked again once its requests were cancelled."
RESTARTED = "It was started again."
AGAIN = "It stood still again before it was repaired."
CANCELLED = "Its start was cancelled."
PARKED = "Its profile is parked."
NOT_RESTARTED = "It was not started again."
DAEMON_ENDED = "The daemon ended meanwhile."
RELAPSED = "it had been stuck a short time before"


def stopped(name: str, why: str) -> str:
    """Word the error of requests that the engine held."""
    return f"{name} stopped making progress: {why}."


def named(name: str, why: str) -> str:
    """Word the notice that an engine is stuck."""
    return f"{stopped(name, why)} Evidence is taken, then its requests are cancelled."


def only_told(name: str, why: str, *, ours: bool) -> str:
    """Word the notice of a stuck engine that is left alone."""
    if ours:
        return f"{stopped(name, why)} Nothing is done (`on_stuck: tell`); `sparkdash stop {name}` ends it."
    return f"{stopped(name, why)} The server is not ours, so it is left alone."


def ended(name: str, why: str, why_not: str) -> str:
    """Word the failure of a stuck engine that was ended."""
    return f"{stopped(name, why)} Cancelling its requests did not free it ({why_not}), so it was ended."


def left_for(target: str | None) -> str:
    """Word the end of an incident whose engine was ended for a swap."""
    return "It was stopped." if target is None else f"It left for {target}."


def not_started(why: str) -> str:
    """Word the end of an incident whose engine did not come up again."""
    return f"It did not come up again: {why}"


def over(incident: Incident) -> str:
    """Word the notice at the end of an incident; empty where nobody needs one."""
    name, took = incident.profile, duration((incident.ended_at or incident.named_at) - incident.began)
    match incident.end:
        case IncidentEnd.RECOVERED | IncidentEnd.RESTARTED:
            return f"{name} serves again {took} after its last progress. {incident.note}"
        case IncidentEnd.MOVED:
            return f"{name} moves again after {took} without progress."
        case IncidentEnd.TOLD:
            return f"{name} moves again. {incident.note}"
        case IncidentEnd.FAILED:
            return f"{name} was stuck and does not serve again. {incident.note}"
        case _:
            return ""
