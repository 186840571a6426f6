"""Control: the `/api` routes, typed.

Owns: what each route takes and gives. Must not decide anything: the supervisor does, and errors are raised as they
are (app.py renders them).
"""

from fastapi import APIRouter, Depends, Request

from sparkdash.gateway.admission.guard import check_json
from sparkdash.gateway.control import measuring, reading, switching, upkeep
from sparkdash.gateway.control.bodies import Health, Problem
from sparkdash.gateway.control.seen import hand

__all__ = ["Health", "Problem", "hand", "router"]


def router() -> APIRouter:
    """All of `/api`."""
    api = APIRouter(
        prefix="/api",
        dependencies=[Depends(_posts_json)],
        responses={"default": {"model": Problem, "description": "Any error"}},
    )
    for part in (reading, switching, measuring, upkeep):
        part.add(api)
    return api


async def _posts_json(request: Request) -> None:
    if request.method == "POST":
        check_json(request.headers.get("content-type", ""))
