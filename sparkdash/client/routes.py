"""The control API as values: each function says what to ask and how to read the answer.

Owns: paths, bodies and answers of `/api`, once for the synchronous and the asynchronous client.
Must not know: sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from sparkdash.domain.finding import Diagnosis
from sparkdash.domain.incident import IncidentList
from sparkdash.domain.measuring import Measuring
from sparkdash.domain.memory.account import MemoryAccount
from sparkdash.domain.profile import Profile, ProfileSummary
from sparkdash.domain.shelf import Shelf
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Plan

T = TypeVar("T")
ANSWER_S = 30.0
"""Limit of a plain call. The slowest asks podman something; the daemon gives podman less than this."""
EXAMINATION_S = 60.0
"""Limit of a doctor's examination or a report. Each of the doctor's commands has its own limit, 15 s at most."""
JOB_S = None
"""Limit of an order that is answered once carried out: a drain and a stop take as long as the owner's settings
allow.
"""
Cause = Literal["user", "bench"]
"""On whose behalf a profile is brought up."""


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """Request to the daemon: a GET, or a POST when there is a body, unless `verb` says otherwise.

    `silence_s`: longest silence before the daemon counts as not answering; None: no limit.
    """

    path: str
    read: Callable[[bytes], T]
    body: Mapping[str, object] | None = None
    verb: str | None = None
    silence_s: float | None = ANSWER_S

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.verb or ("GET" if self.body is None else "POST")


class _Answer(BaseModel):
    """Answers of the control API that are no domain values; keys of a newer daemon are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ProfileList(_Answer):
    """Every profile of the catalog, and the files that could not be read."""

    profiles: tuple[ProfileSummary, ...]
    problems: tuple[str, ...] = ()


class Toggle(_Answer):
    """The two profiles that the A/B key flips between, and the one that runs or is coming up."""

    a: str | None
    b: str | None
    active: str | None = None


class Hold(_Answer):
    """The right to have the gateway to oneself, which lapses unless it is renewed within `ttl_s`."""

    token: str
    ttl_s: float
    ends: bool = False
    """Somebody asked for its end."""


def _nothing(_body: bytes) -> None:
    return None


def state() -> Ask[Snapshot]:
    """The world now."""
    return Ask("/api/state", Snapshot.model_validate_json)


def profiles() -> Ask[ProfileList]:
    """All profiles and problems."""
    return Ask("/api/profiles", ProfileList.model_validate_json)


def profile(name: str) -> Ask[Profile]:
    """One whole profile."""
    return Ask(f"/api/profiles/{quote(name)}", Profile.model_validate_json)


def plan(name: str) -> Ask[Plan]:
    """What `use` would do."""
    return Ask(f"/api/plan/{quote(name)}", Plan.model_validate_json)


def incidents(profile: str | None = None) -> Ask[IncidentList]:
    """Times that an engine stood still; of one profile, or of all."""
    query = "" if profile is None else f"?profile={quote(profile, safe='')}"
    return Ask(f"/api/incidents{query}", IncidentList.model_validate_json)


def shelf() -> Ask[Shelf]:
    """What of each profile is on the daemon's box."""
    return Ask("/api/shelf", Shelf.model_validate_json)


def memory() -> Ask[MemoryAccount]:
    """Who holds the memory of the daemon's box."""
    return Ask("/api/memory", MemoryAccount.model_validate_json)


def doctor() -> Ask[Diagnosis]:
    """What of the daemon's box would keep engines from running."""
    return Ask("/api/doctor", Diagnosis.model_validate_json, silence_s=EXAMINATION_S)


def runs() -> Ask[bytes]:
    """What was measured, as JSON; the bench knows its shape."""
    return Ask("/api/bench", bytes, silence_s=EXAMINATION_S)


def report(run: str) -> Ask[bytes]:
    """The report of one run, as JSON."""
    return Ask(f"/api/bench/{quote(run, safe='')}", bytes, silence_s=EXAMINATION_S)


def use(name: str, cause: Cause = "user") -> Ask[Plan]:
    """Bring a profile up; the answer comes before the swap."""
    named = {"profile": name}
    return Ask("/api/use", Plan.model_validate_json, named if cause == "user" else {**named, "cause": cause})


def hold(
    holder: str,
    token: str | None,
    expected_s: float | None,
    measuring: Measuring | None,
    *,
    shares: bool,
    pid: int | None,
) -> Ask[Hold]:
    """Take the gateway for oneself, or keep it."""
    body: dict[str, object] = {"holder": holder, "token": token, "expected_s": expected_s}
    body |= {"shares": True} if shares else {}
    body |= {"pid": pid} if pid is not None else {}
    if measuring is not None:
        body["measuring"] = measuring.model_dump(mode="json")
    return Ask("/api/lease", Hold.model_validate_json, body)


def end_measuring() -> Ask[None]:
    """Ask the run that is measured to stop."""
    return Ask("/api/bench/end", _nothing, {})


def resume(run: str) -> Ask[None]:
    """Have a run go on."""
    return Ask(f"/api/bench/{quote(run, safe='')}/resume", _nothing, {})


def let_go() -> Ask[None]:
    """Let others in again."""
    return Ask("/api/lease", _nothing, verb="DELETE")


def release(name: str | None) -> Ask[None]:
    """Let one parked profile, or all, be tried again."""
    return Ask("/api/release", _nothing, {"profile": name})


def stop(name: str | None, *, wait: bool = True) -> Ask[None]:
    """Request the stop of one engine, or all; with `wait` the answer comes when it is gone."""
    body: dict[str, object] = {"profile": name}
    return Ask("/api/stop", _nothing, body if wait else {**body, "wait": False}, silence_s=JOB_S)


def cancel() -> Ask[None]:
    """Request the end of every swap under way; the answer comes when what they began is cleaned away."""
    return Ask("/api/cancel", _nothing, {}, silence_s=JOB_S)


def cancel_request(request_id: str) -> Ask[None]:
    """End one request."""
    return Ask(f"/api/requests/{quote(request_id, safe='')}/cancel", _nothing, {})


def toggle(a: str | None, b: str | None, *, flip: bool) -> Ask[Toggle]:
    """Set the pair (what is None stays as it is), and flip."""
    pair = {key: value for key, value in (("a", a), ("b", b)) if value is not None}
    return Ask("/api/toggle", Toggle.model_validate_json, {**pair, "flip": flip})


def reload() -> Ask[ProfileList]:
    """Read the profiles again."""
    return Ask("/api/reload", ProfileList.model_validate_json, {})


def traffic(*, on: bool) -> Ask[None]:
    """Switch the demo's traffic."""
    return Ask("/api/traffic", _nothing, {"on": on})


def shutdown(engines: Literal["keep", "stop"]) -> Ask[None]:
    """End the daemon."""
    return Ask("/api/shutdown", _nothing, {"engines": engines})


def logs(name: str, *, follow: bool, tail: int | None) -> str:
    """Path of an engine's log as text."""
    parts = ([f"tail={tail}"] if tail is not None else []) + (["follow=1"] if follow else [])
    return f"/api/logs/{quote(name)}" + ("?" + "&".join(parts) if parts else "")


def events(since: int | None) -> str:
    """Path of the feed, from a snapshot or after event `since`."""
    return "/api/events" if since is None else f"/api/events?since={since}"
