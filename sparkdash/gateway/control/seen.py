"""Seen: the gateway's dependencies as the caller of a control route may see them.

Owns: how a route gets its dependencies. Rule: a control route has no other source, so none can forget who calls.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

from sparkdash.gateway.deps import Deps

_KEY = "sparkdash.deps"


def hand(scope: Scope, deps: Deps) -> None:
    """Put the dependencies that the caller may see into the request's scope."""
    scope[_KEY] = deps


async def _seen(request: Request) -> Deps:  # a plain function would be run in a thread
    deps: Deps = request.scope[_KEY]
    return deps


Seen = Annotated[Deps, Depends(_seen)]
"""The parameter of every control route."""
