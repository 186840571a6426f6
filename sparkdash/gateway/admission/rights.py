"""Rights: the key that each route requires. docs/access.md shows the same by caller; a test compares them.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.access.key import Scope
from sparkdash.gateway.protocol.route import METRICS, is_control

READ = ("GET", "HEAD")
ALIVE = frozenset({"/health", "/v1/health", "/ping", "/", "/api/hello"})
"""Routes by which clients see whether the gateway is up: always 200, whatever the engines do."""


class Right(NamedTuple):
    """Right to use a route."""

    scope: Scope | None
    """Scope that the key needs; None: no key is needed."""

    def is_granted(self, scopes: Sequence[Scope]) -> bool:
        """Whether a key with these scopes has the right: who may control may also read the metrics."""
        if self.scope is Scope.METRICS and Scope.CONTROL in scopes:
            return True
        return self.scope is None or self.scope in scopes


INFERENCE = Right(Scope.INFERENCE)
"""Right of every route that is not for control."""
ANYBODY = Right(None)
CONTROL = Right(Scope.CONTROL)
SCRAPE = Right(Scope.METRICS)


def right_of(path: str) -> Right:
    """Look up who may use the route of that (decoded) path."""
    if path in ALIVE:
        return ANYBODY
    if path.rstrip("/") == METRICS:
        return SCRAPE
    return CONTROL if is_control(path) else INFERENCE
