"""Why a request is not served: the words. Pure."""

from __future__ import annotations

from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.supervisor.moves import Known

RETRY_S = 10.0
"""What a full queue asks a client to wait. Clients keep Retry-After to the second, and none waits minutes."""


def of(name: str, known: Known | None) -> SparkdashError | None:
    """Why this profile can never be started, or None."""
    if known is None:
        return AdmissionError(f"No profile is called {name!r}.", code="model_not_found", status=404)
    if known.cannot_run:
        hint = f"Use {known.nearest} instead." if known.nearest else None
        return AdmissionError(f"{name} cannot run here: {known.cannot_run}.", code="cannot_run", hint=hint)
    return None


def nothing_to_pull(profile: Profile, *, containerised: bool) -> SparkdashError | None:
    """Why there is no image to fetch for it, where that is no mistake of the profile's; or None."""
    why = profile.fetches_nothing or (
        None if containerised else "the daemon starts plain processes, which need no image"
    )
    return (
        AdmissionError(f"There is no image to fetch for {profile.name}: {why}.", code="nothing_to_pull")
        if why
        else None
    )


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
