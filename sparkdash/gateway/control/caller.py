"""Dependencies of a control route: what its caller may see, and whether the caller's key still holds.

Owns: how a route gets its dependencies. Rule: a control route has no other source, so none can forget who calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.types import Scope

from sparkdash.access.key import Key
from sparkdash.gateway.admission.access import key_check
from sparkdash.gateway.deps import Deps

_DEPS, _KEY = "sparkdash.deps", "sparkdash.key"


def set_caller(scope: Scope, deps: Deps, key: Key | None) -> None:
    """Put the caller's key and the dependencies that the caller may see into the request's scope."""
    scope[_DEPS], scope[_KEY] = deps, key


async def _caller_deps(request: Request) -> Deps:  # a plain function would be run in a thread
    deps: Deps = request.scope[_DEPS]
    return deps


async def _key_check(request: Request) -> Callable[[], bool]:
    deps: Deps = request.scope[_DEPS]
    return key_check(request.scope[_KEY], deps.keys, deps.clock)


async def _caller_key(request: Request) -> Key | None:
    key: Key | None = request.scope[_KEY]
    return key


CallerDeps = Annotated[Deps, Depends(_caller_deps)]
"""Parameter of every control route."""
CallerKey = Annotated[Key | None, Depends(_caller_key)]
"""Parameter of routes that send a request on their caller's behalf: the key, None where none was needed."""
KeyCheck = Annotated[Callable[[], bool], Depends(_key_check)]
"""Parameter of routes whose answer has no end: whether the caller's key still holds."""
LeaseToken = Annotated[str | None, Header(description="The token of POST /api/lease")]
"""Parameter of routes that a lease reserves for its holder."""
