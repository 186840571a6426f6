"""The routes of the daemon's upkeep: images, profiles, the demo's traffic, its end.

Owns: what each of them takes. Must not know how any of it is done.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse
from starlette.background import BackgroundTask

from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.answers import STREAM, pulled
from sparkdash.gateway.control.bodies import Done, NoBody, ProfileList, PullBody, ShutdownBody, TrafficBody
from sparkdash.gateway.control.reading import listed
from sparkdash.gateway.control.seen import Seen


def add(api: APIRouter) -> None:
    """All of them."""

    @api.post("/pull-image", summary="Fetch a profile's image", response_class=StreamingResponse, responses=STREAM)
    async def pull(body: PullBody, deps: Seen) -> StreamingResponse:
        deps.catalog().find(body.profile)
        return StreamingResponse(pulled(deps.supervisor.pull(body.profile)), media_type="text/event-stream")

    @api.post("/reload", summary="Read the profiles again")
    async def reload(_body: NoBody, deps: Seen) -> ProfileList:
        await deps.reload()
        return listed(deps)

    @api.post("/traffic", summary="Switch the demo's own traffic")
    async def traffic(body: TrafficBody, deps: Seen) -> Done:
        if deps.traffic is None:
            raise AdmissionError("Only the demo makes traffic of its own.", code="no_traffic", status=404)
        deps.traffic(body.on)
        return Done()

    @api.post("/shutdown", status_code=202, summary="End the daemon")
    async def shutdown(body: ShutdownBody, deps: Seen) -> Response:
        async def end() -> None:  # a plain callable that returns an awaitable would be run in a thread, never awaited
            await deps.shutdown(body.engines == "stop")

        return Response(Done().model_dump_json(), 202, media_type="application/json", background=BackgroundTask(end))
