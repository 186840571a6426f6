"""Control routes for upkeep: images, profiles, the demo's traffic, the end of the daemon.

Owns: their order. Must not know how any of it is done.
"""

from __future__ import annotations

from fastapi import APIRouter, BackgroundTasks
from fastapi.responses import StreamingResponse

from sparkdash.api.answers import Done, ProfileList
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import NoParameters, PullBody, ShutdownBody, TrafficBody
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.caller import CallerDeps
from sparkdash.gateway.control.reading import profile_list
from sparkdash.gateway.control.registration import serves, serves_raw
from sparkdash.gateway.control.streams import STREAM, encode_pull


def add_routes(api: APIRouter) -> None:
    """Register the handlers of this module."""
    serves_raw(api, ControlApi.pull, pull, StreamingResponse, STREAM)
    serves(api, ControlApi.reload, reload)
    serves(api, ControlApi.traffic, traffic)
    serves(api, ControlApi.shutdown, shutdown)


async def pull(body: PullBody, deps: CallerDeps) -> StreamingResponse:
    """Stream the progress of a pull."""
    deps.catalog().find(body.profile)
    return StreamingResponse(encode_pull(deps.supervisor.pull(body.profile)), media_type="text/event-stream")


async def reload(_body: NoParameters, deps: CallerDeps) -> ProfileList:
    """Read the profiles again, and list them."""
    await deps.reload()
    return profile_list(deps)


async def traffic(body: TrafficBody, deps: CallerDeps) -> Done:
    """Switch the demo's traffic."""
    if deps.traffic is None:
        raise AdmissionError("Only the demo makes traffic of its own.", code="no_traffic", status=404)
    deps.traffic(body.on)
    return Done()


async def shutdown(body: ShutdownBody, deps: CallerDeps, after_answer: BackgroundTasks) -> Done:
    """End the daemon after this answer."""

    async def end() -> None:  # a plain callable that returns an awaitable would be run in a thread, never awaited
        await deps.shutdown(body.engines == "stop")

    after_answer.add_task(end)
    return Done()
