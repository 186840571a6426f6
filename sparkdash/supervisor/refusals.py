"""Why a request is not served: the words, and for how long a failure is remembered. Pure."""

from __future__ import annotations

import copy

from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.supervisor.moves import Known

REMEMBER_S = 60.0
"""A profile that failed to start is refused at once for this long, with the reason: clients re-post within seconds,
and each try costs a swap."""

RETRY_S = 10.0
"""What a full queue asks a client to wait. Clients keep Retry-After to the second, and none waits minutes."""


class Memory:
    """Which profiles failed lately, and why."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[SparkdashError, float]] = {}
        """The reason, and until when it counts."""

    def note(self, profile: str, error: SparkdashError, now: float) -> None:
        """It failed just now. A reason that says itself when to come back counts until then."""
        self._failed[profile] = (error, now + (error.retry_after or REMEMBER_S))

    def forget(self, profile: str) -> None:
        """It may be tried again."""
        self._failed.pop(profile, None)

    def of(self, profile: str, now: float) -> SparkdashError | None:
        """The reason, with the seconds after which a new try makes sense; None when it may be tried now."""
        error, until = self._failed.get(profile, (None, 0.0))
        if error is None:
            return None
        if now >= until:
            self.forget(profile)
            return None
        again = copy.copy(error)
        again.retry_after = until - now
        return again


def of(name: str, known: Known | None) -> SparkdashError | None:
    """Why this profile can never be started, or None."""
    if known is None:
        return AdmissionError(f"No profile is called {name!r}.", code="model_not_found", status=404)
    if known.cannot_run:
        hint = f"Use {known.nearest} instead." if known.nearest else None
        return AdmissionError(f"{name} cannot run here: {known.cannot_run}.", code="cannot_run", hint=hint)
    return None


def no_engine() -> SparkdashError:
    """`auto` was asked for and nothing runs."""
    return AdmissionError(
        "No engine runs, and 'auto' never starts one.",
        code="no_engine",
        status=503,
        hint="Name a profile as the model, or start one with `sparkdash use PROFILE`.",
    )


def queue_full(limit: int) -> SparkdashError:
    """As many wait as may."""
    return AdmissionError(
        f"{limit} requests wait already.",
        code="queue_full",
        status=503,
        retry_after=RETRY_S,
        hint="Come back later, or raise `queue_limit` in config.toml.",
    )


def stopped(profile: str | None) -> SparkdashError:
    """A person stopped what it waited for."""
    what = profile or "Everything"
    return AdmissionError(f"{what} was stopped while this request waited.", code="stopped", status=503)


def cancelled(profile: str | None) -> SparkdashError:
    """A person gave the swap up."""
    return AdmissionError(
        f"The start of {profile} was cancelled while this request waited.", code="cancelled", status=503
    )


def cut(target: str | None) -> SparkdashError:
    """A lease outlived the drain."""
    why = f"to make room for {target}" if target else "because its engine was stopped"
    return EngineError(
        f"This request was cut {why}, after the drain limit.",
        code="cut",
        hint="Raise `drain_s` in config.toml if answers need longer.",
    )
