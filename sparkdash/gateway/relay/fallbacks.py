"""Fallbacks: which profile answers when the requested one cannot.

Rule 1: only before the first byte, and only for generated text: another model's embeddings would be wrong.
Rule 2: only the requested profile's own list, in its order; fallbacks of a fallback are not followed.
Rule 3: a person's decision (stop, cancel) and a mistake in the request are no reason.
"""

from collections.abc import Sequence
from copy import copy
from http import HTTPStatus

from sparkdash.domain.event import Level, Notice
from sparkdash.errors import AdmissionError, EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.gateway.admission.access import permitted_name
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay.admitted import RequestContext, next_replica

ANSWERED = b"x-sparkdash-profile"
"""Header: profile that answered instead of the requested one."""
INSTEAD = b"x-sparkdash-fallback"
"""Header: requested profile, and the code of its failure."""
AGAIN_S = 600.0
"""Seconds after which the same fallback is announced again."""
_REMOTE_FAILED = frozenset({"remote_unreachable", "remote_died"})
"""A service elsewhere that did not answer is not asked a second time while another profile can answer."""
_SLOW = "engine_timeout"
"""Code of an engine's time-out: the same engine would take as long again."""
_STUCK = "engine_stuck"
"""Code of an engine that stood still: another comes in its place, or it works again."""
_UNREACHABLE = "engine_unreachable"
"""Code of an engine that takes no connection: a frozen one under load, until the supervisor gives it up."""
_FULL = "too_many_requests"
"""Code of a profile at its `max_concurrency`; another replica of it may have room."""
UNREACHABLE_S = 180.0
"""Longest wait for such an engine; three looks ten seconds apart give it up sooner."""
PAUSE_S = 2.0
"""Between two attempts of it."""
COME_BACK_S = 10.0
_CANNOT = frozenset(
    {"cannot_run", "does_not_fit", "pinned", "needs_two_nodes", "node_unknown", "node_unreachable", "nodes_apart"}
)


class RetryPlan:
    """Further attempts of a failed request: a second one where the engine broke off, then the fallbacks, each with as
    many.

    `instead`: error of the requested profile, once it is given up.
    """

    def __init__(self, context: RequestContext) -> None:
        self.instead: SparkdashError | None = None
        self._context = context
        self._tried: list[str] = []
        self._others = fallback_names(context)
        self._left = iter(self._others)
        self._name = context.name
        self._tried_again = False
        self._outlived_stuck = False
        """Whether its one attempt after a stuck engine is spent: trouble before that costs it nothing."""
        self._failed: list[tuple[str, SparkdashError]] = []
        self._now = context.deps.monotonic
        self._since = self._now()
        self.pause_s = 0.0
        """Pause before the next attempt."""

    def next_name(self, error: SparkdashError) -> str:
        """Choose the profile to ask after `error`. Raises SparkdashError, for the client: no attempt is left."""
        self.pause_s = 0.0
        if (other := self._next_replica(error)) is not None:
            return other
        if isinstance(error, UpstreamError) and self._takes_second_attempt(error):
            return self._name
        if error.code == _UNREACHABLE and isinstance(error, UpstreamError) and not self._others:
            if self.waited_s() >= UNREACHABLE_S:
                last = copy(error)
                last.status, last.retry_after = HTTPStatus.SERVICE_UNAVAILABLE.value, COME_BACK_S
                raise last
            self.pause_s = PAUSE_S
            return self._name
        if not allows_fallback(error):
            raise error
        self._failed.append((self._name, error))
        self.instead = self._failed[0][1]
        following = next(self._left, None)
        if following is None:
            raise all_failed_error(self._failed)
        self._name, self._tried_again, self._outlived_stuck = following, False, False
        return following

    def _next_replica(self, error: SparkdashError) -> str | None:
        """Choose another replica, without announcing it; the last one that was asked gets the usual attempts."""
        if not (isinstance(error, UpstreamError) or allows_fallback(error) or error.code == _FULL):
            return None
        self._tried.append(self._name)
        if (name := next_replica(self._context, self._tried)) is not None:
            self._failed.append((self._name, error))
            self._name = name
        return name

    def waited_s(self) -> float:
        return self._now() - self._since

    def _takes_second_attempt(self, error: UpstreamError) -> bool:
        """Whether the same profile is asked again; if so, its attempt is spent."""
        if error.code == _STUCK and not self._outlived_stuck:
            self._tried_again = self._outlived_stuck = True
            return True
        if self._tried_again or error.code == _SLOW or (error.code in _REMOTE_FAILED and self._others):
            return False
        self._tried_again = True
        return True


def fallback_names(context: RequestContext) -> list[str]:
    """List the fallbacks that exist and that the key may use."""
    profile, route, deps = context.profile, context.route, context.deps
    if profile is None or not profile.fallbacks or not route.generates or route.profile is not None:
        return []
    catalog = deps.catalog()
    found: list[str] = []
    for word in profile.fallbacks:
        try:
            other = catalog.find(permitted_name(context.exchange.key, word, catalog, lambda: deps.bus.snapshot))
        except SparkdashError:
            continue
        if other.name != profile.name and not other.cannot_run:
            found.append(other.name)
    return list(dict.fromkeys(found))


def allows_fallback(error: SparkdashError) -> bool:
    """Whether another profile may answer after this failure."""
    match error:
        case EngineError() | UpstreamError():
            return error.code != problems.CUT
        case HostError():
            return True
        case AdmissionError():
            return error.code in _CANNOT
    return False


def all_failed_error(failed: Sequence[tuple[str, SparkdashError]]) -> SparkdashError:
    """Combine the failures: the first one, with the fallbacks' messages in its text."""
    (_, first), *rest = failed
    if not rest:
        return first
    combined = copy(first)
    combined.message = " ".join([first.message, *(f"Nor can {name}: {error.message}" for name, error in rest)])
    return combined


def notify_fallback(deps: Deps, asked: str, error: SparkdashError, other: str) -> None:
    """Announce a fallback to people; the same one at most every ten minutes."""
    now, what = deps.monotonic(), (asked, other, error.code)
    if now - deps.fallback_notices.get(what, -AGAIN_S) >= AGAIN_S:
        deps.fallback_notices[what] = now
        text = f"{other} answers instead of {asked}: {error.message}"
        deps.bus.publish(Notice(level=Level.WARNING, code="fallback", text=text, profile=asked))
