"""Rights: the key that each route requires, and what a key for some models gets of it.

Owns: the one table of routes and rights. Rule: a control route without a line here is closed to keys for some models,
and `tests/gateway/test_gateway_rights.py` fails for it. docs/access.md shows the same table by caller; a test compares
that page with the running gateway.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from starlette.routing import compile_path

from sparkdash.access.key import Scope
from sparkdash.gateway.protocol.route import METRICS, is_control

READ = ("GET", "HEAD")
ALIVE = frozenset({"/health", "/v1/health", "/ping", "/", "/api/hello"})
"""Routes by which clients see whether the gateway is up: always 200, whatever the engines do."""


class Reach(StrEnum):
    """Part of a control route that a key for some models may use."""

    OWN = "own"
    """The key's own models: other models are refused by name, and left out of lists (`narrow` does both)."""
    NOTHING = "nothing"
    """No part: the route concerns the whole box."""


class Right(NamedTuple):
    """Right to use a route."""

    scope: Scope | None
    """Scope that the key needs; None: no key is needed."""
    reach: Reach = Reach.OWN

    def is_granted(self, scopes: Sequence[Scope]) -> bool:
        """Whether a key with these scopes has the right: who may control may also read the metrics."""
        if self.scope is Scope.METRICS and Scope.CONTROL in scopes:
            return True
        return self.scope is None or self.scope in scopes


CONTROL: dict[tuple[str, str], Reach] = {
    ("GET", "/api/openapi.json"): Reach.OWN,
    ("GET", "/api/state"): Reach.OWN,
    ("GET", "/api/events"): Reach.OWN,
    ("GET", "/api/profiles"): Reach.OWN,
    ("GET", "/api/profiles/{name:path}"): Reach.OWN,
    ("GET", "/api/plan/{name:path}"): Reach.OWN,
    ("GET", "/api/incidents"): Reach.OWN,
    ("GET", "/api/shelf"): Reach.OWN,
    ("GET", "/api/history/figures"): Reach.OWN,
    ("GET", "/api/history/series"): Reach.OWN,
    ("GET", "/api/history/recent"): Reach.OWN,
    ("GET", "/api/history/usage"): Reach.OWN,
    ("GET", "/api/history/requests"): Reach.OWN,
    ("GET", "/api/history/marks"): Reach.OWN,
    ("GET", "/api/logs/{name:path}"): Reach.OWN,
    ("GET", "/api/doctor"): Reach.NOTHING,
    ("GET", "/api/memory"): Reach.NOTHING,
    ("GET", "/api/settings"): Reach.NOTHING,
    ("GET", "/api/bench"): Reach.NOTHING,
    ("GET", "/api/bench/{run}"): Reach.NOTHING,
    ("POST", "/api/settings"): Reach.NOTHING,
    ("POST", "/api/bench"): Reach.NOTHING,
    ("POST", "/api/bench/end"): Reach.NOTHING,
    ("POST", "/api/bench/{run}/resume"): Reach.NOTHING,
    ("POST", "/api/use"): Reach.OWN,
    ("POST", "/api/stop"): Reach.OWN,
    ("POST", "/api/release"): Reach.OWN,
    ("POST", "/api/extend-load"): Reach.OWN,
    ("POST", "/api/cancel"): Reach.OWN,
    ("POST", "/api/requests/{request_id}/cancel"): Reach.OWN,
    ("POST", "/api/pull-image"): Reach.OWN,
    ("POST", "/api/toggle"): Reach.NOTHING,
    ("POST", "/api/use-set"): Reach.NOTHING,
    ("POST", "/api/replay"): Reach.NOTHING,
    ("POST", "/api/lease"): Reach.NOTHING,
    ("DELETE", "/api/lease"): Reach.NOTHING,
    ("GET", "/api/gpu-clock"): Reach.NOTHING,
    ("POST", "/api/gpu-clock"): Reach.NOTHING,
    ("POST", "/api/reload"): Reach.NOTHING,
    ("POST", "/api/traffic"): Reach.NOTHING,
    ("POST", "/api/shutdown"): Reach.NOTHING,
}
"""Reach of a key for some models on each control route, spelled as the framework does."""
_FIXED = {route: reach for route, reach in CONTROL.items() if "{" not in route[1]}
_PATTERNS = [(method, compile_path(path)[0], reach) for (method, path), reach in CONTROL.items() if "{" in path]
INFERENCE = Right(Scope.INFERENCE)
"""Right of every route that is not for control."""
ANYBODY = Right(None)
SCRAPE = Right(Scope.METRICS, Reach.NOTHING)
"""Right to read the metrics, which tell of every model."""


@lru_cache(maxsize=256)
def right_of(method: str, path: str) -> Right:
    """Look up who may use the route of that (decoded) path."""
    if path in ALIVE:
        return ANYBODY
    if path.rstrip("/") == METRICS:
        return SCRAPE
    return Right(Scope.CONTROL, _reach(method, path)) if is_control(path) else INFERENCE


def _reach(method: str, path: str) -> Reach:
    tidy = path.rstrip("/").removeprefix("/v1")
    if (found := _FIXED.get((method, tidy))) is not None:
        return found
    return next((reach for of, form, reach in _PATTERNS if of == method and form.match(path)), Reach.NOTHING)
