"""Routes of described servers: refusal of those that a server does not serve, and its own paths.

Owns: which paths of the gateway mean which route of `engine: generic`. Must not know leases or HTTP.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.task import ROUTE_PATHS, ServerRoute
from sparkdash.engines.generic.known_servers import server_of
from sparkdash.errors import AdmissionError
from sparkdash.gateway.protocol.route import Route

_ROUTES: Mapping[str, ServerRoute] = MappingProxyType(
    {
        **{path: route for route, path in ROUTE_PATHS.items()},
        "/rerank": ServerRoute.RERANK,
        "/v2/rerank": ServerRoute.RERANK,
        "/score": ServerRoute.SCORE,
    }
)
_TRANSLATED = frozenset({ServerRoute.RESPONSES, ServerRoute.MESSAGES})
"""Routes that a chat can answer."""


def refuse_unserved(profile: Profile | None, route: Route) -> None:
    """Raise AdmissionError for a route that the profile's server does not serve.

    Paths of no known route are left to the server.
    """
    if profile is None or profile.engine is not EngineKind.GENERIC or route.profile is not None:
        return
    wanted = _ROUTES.get(route.path)
    if wanted is None:
        return
    served = server_of(profile).routes
    if wanted in served or (wanted in _TRANSLATED and ServerRoute.CHAT in served):
        return
    raise AdmissionError(
        f"{profile.name} does not serve {route.path}. It serves {', '.join(ROUTE_PATHS[each] for each in served)}.",
        code="route_not_served",
        hint="Choose another model, or add the route to `server.routes` of its profile if the server has it.",
        status=404,
    )


def server_path(profile: Profile, path: str) -> str:
    """Return the path of a request at the profile's server."""
    if profile.engine is not EngineKind.GENERIC or profile.server is None:
        return path
    route = _ROUTES.get(path)
    return path if route is None else server_of(profile).paths.get(route, path)
