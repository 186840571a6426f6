"""Control: the `/api` routes, typed.

Owns: what each route takes and gives. Must not decide anything: the supervisor does, and errors are raised as they
are (app.py renders them).
"""

from fastapi import APIRouter

from sparkdash.gateway.control import measuring, reading, switching, upkeep
from sparkdash.gateway.control.bodies import Health, Problem
from sparkdash.gateway.deps import Deps

__all__ = ["Health", "Problem", "router"]


def router(deps: Deps) -> APIRouter:
    """All of `/api`."""
    api = APIRouter(prefix="/api", responses={"default": {"model": Problem, "description": "Any error"}})
    for part in (reading, switching, measuring, upkeep):
        part.add(api, deps)
    return api
