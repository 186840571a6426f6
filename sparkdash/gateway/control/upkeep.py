"""Control routes for upkeep: images, profiles, the demo's traffic, the end of the daemon."""

from __future__ import annotations

from fastapi import APIRouter, BackgroundTasks, Request
from fastapi.responses import StreamingResponse

from sparkdash.api.answers import Done, ProfileList, SettingList
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import NoParameters, PullBody, SettingBody, ShutdownBody, TrafficBody
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.reading import profile_list
from sparkdash.gateway.control.routes import STREAM, CallerDeps, encode_pull, serves, serves_raw
from sparkdash.gateway.http.exchange import by_unix_socket

SOCKET_ONLY = frozenset(
    {
        "hooks", "alerts", "profiles", "runtime", "host", "port", "tls_cert", "tls_key", "host_names",
        "allowed_origins", "hf_home", "cache_dir", "capture", "guard", "history",
    }
)  # fmt: skip
"""Keys that run programs, open the port, name files, disarm the guard or shorten the past: a key of a client must not
reach beyond its box's models.
"""


async def settings(deps: CallerDeps) -> SettingList:
    """List every setting with its value, default and meaning. Addresses of hooks are left out."""
    if deps.settings_list is None:
        raise _no_file()
    return await deps.settings_list()


async def change_setting(body: SettingBody, request: Request, deps: CallerDeps) -> SettingList:
    """Write one value into config.toml, whose comments stay; a value that is not valid changes nothing."""
    if deps.change_setting is None:
        raise _no_file()
    if body.key[0] in SOCKET_ONLY and not by_unix_socket(request.scope["server"]):
        raise AdmissionError(
            f"{body.key[0]} can be changed on the daemon's own box only.",
            code="socket_only",
            status=403,
            hint="Edit config.toml there, or use its dashboard.",
        )
    return await deps.change_setting(body)


def _no_file() -> AdmissionError:
    hint = "Without a demo, the settings are in config.toml."
    return AdmissionError("The demo has no config.toml.", code="no_settings", status=404, hint=hint)


def add_routes(api: APIRouter) -> None:
    serves(api, ControlApi.settings, settings)
    serves(api, ControlApi.change_setting, change_setting)
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
