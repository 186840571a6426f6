"""Control routes for the settings of config.toml.

Owns: which keys a caller over TCP may not change. Must not know how the file is read or written.
"""

from __future__ import annotations

from fastapi import APIRouter, Request

from sparkdash.api.answers import SettingList
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import SettingBody
from sparkdash.errors import AdmissionError
from sparkdash.gateway.control.caller import CallerDeps
from sparkdash.gateway.control.registration import serves
from sparkdash.gateway.http.parsed_head import by_unix_socket

SOCKET_ONLY = frozenset(
    {
        "hooks", "alerts", "profiles", "runtime", "host", "port", "tls_cert", "tls_key", "host_names",
        "allowed_origins", "hf_home", "cache_dir", "capture", "guard", "history",
    }
)  # fmt: skip
"""Keys that run programs, open the port, name files, disarm the guard or shorten the past: a key of a client must not
reach beyond its box's models.
"""


def add_routes(api: APIRouter) -> None:
    """Register the handlers of this module."""
    serves(api, ControlApi.settings, settings)
    serves(api, ControlApi.change_setting, change_setting)


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
