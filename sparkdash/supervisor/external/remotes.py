"""Services elsewhere: no engine, no turn, no memory. Who asks for one gets it at once.

Owns: what a request to one carries (its key out of our environment), how many requests are on each, and what its
failures are called. Must not know the scheduler: nothing here waits for a swap or causes one.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.profile import Profile
from sparkdash.engines import registry
from sparkdash.errors import AdmissionError, HostError, SparkdashError, UpstreamError
from sparkdash.settings import Settings
from sparkdash.supervisor.claim import Lease
from sparkdash.supervisor.scheduling import refusals


class Remotes:
    """Leases for remote services. `settings` returns the present ones; `now` returns Unix seconds."""

    def __init__(
        self, settings: Callable[[], Settings], now: Callable[[], float], environment: Mapping[str, str] = os.environ
    ) -> None:
        self._settings = settings
        self._now = now
        self._environment = environment
        self._busy: Counter[str] = Counter()

    @contextmanager
    def lease(self, profile: Profile, lost: asyncio.Future[SparkdashError]) -> Iterator[Lease]:
        """Lease this service. An UpstreamError that leaves the context is reworded for a service elsewhere.

        Raises:
            AdmissionError: `max_concurrency` requests are on it already, or it cannot be used.
            HostError: code `key_missing`: our environment lacks its key, or has what cannot be one.
        """
        if profile.cannot_run:
            raise AdmissionError(f"{profile.name} cannot run here: {profile.cannot_run}.", code="cannot_run")
        limit = self._settings().policy_of(profile.name).max_concurrency
        if limit is not None and self._busy[profile.name] >= limit:
            raise refusals.too_many(profile.name, limit, None)
        lease = self._lease(profile, lost)
        self._busy[profile.name] += 1
        try:
            yield lease
        except UpstreamError as error:
            raise _as_remote_error(profile, error) from None
        finally:
            self._busy[profile.name] -= 1

    def _lease(self, profile: Profile, lost: asyncio.Future[SparkdashError]) -> Lease:
        now, url = self._now(), profile.url or ""
        engine = Engine(
            profile=profile.name,
            kind=profile.engine,
            state=EngineState.READY,
            since=now,
            fingerprint=profile.fingerprint,
            url=url,
        )
        names = registry.adapter_of(profile).served_names(profile)
        return Lease(profile, engine, url, names, lost, self._headers(profile))

    def _headers(self, profile: Profile) -> dict[str, str]:
        name = profile.key_env
        if name is None:
            return {}
        if not (key := self._environment.get(name, "").strip()):
            raise HostError(
                f"{profile.name} needs the key of {host(profile)}, and the daemon's environment has no {name}.",
                code="key_missing",
                hint=f"Set {name} where the daemon is started, and start it again.",
            )
        if not key.isascii() or not key.isprintable():
            raise HostError(
                f"The key of {host(profile)} in {name} holds a character that no HTTP header takes.",
                code="key_missing",
                hint="Most often a quote or a dash of a word processor, or a second line. "
                f"Set {name} anew where the daemon is started.",
            )
        return {"Authorization": f"Bearer {key}"}


def host(profile: Profile) -> str:
    """Return the service's host, for messages."""
    return urlsplit(profile.url or "").netloc.rpartition("@")[2] or profile.name


def not_started(profile: Profile) -> AdmissionError:
    """Build the refusal to start, stop or plan a service elsewhere."""
    return AdmissionError(
        f"{profile.name} is a service elsewhere, at {host(profile)}: nothing of it starts or stops here.",
        code="not_managed",
        hint="Requests that name it go there.",
    )


def _as_remote_error(profile: Profile, error: UpstreamError) -> UpstreamError:
    """Reword an engine's error for a remote service: its log is not on this box."""
    if error.code in ("engine_unreachable", "engine_timeout"):
        text, code = f"{profile.name} cannot be reached: {error.message}", "remote_unreachable"
    elif error.code == "engine_died":
        text, code = f"{profile.name}, a service at {host(profile)}, ended its answer too soon.", "remote_died"
    else:
        return error
    return UpstreamError(text, code=code, hint="Is its `url` right, and this box online?")
