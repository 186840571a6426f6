"""Seen: the gateway's dependencies as the caller of a control route may see them.

Owns: how a route gets them. Rule: no route has any other, so that none can forget whom it answers.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

from sparkdash.gateway.deps import Deps

_KEY = "sparkdash.deps"


def hand(scope: Scope, deps: Deps) -> None:
    """Put into a request's scope what its caller may see."""
    scope[_KEY] = deps


async def _seen(request: Request) -> Deps:  # a plain function would be run in a thread
    deps: Deps = request.scope[_KEY]
    return deps


Seen = Annotated[Deps, Depends(_seen)]
"""The parameter of every control route."""
