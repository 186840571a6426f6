"""`/upstream/PROFILE/PATH`: one profile's engine without changes.

Owns: which engine a path means, and what may be asked of it. The lease, and a dead engine, are passthrough's.
Rule: a POST or a WebSocket loads the profile as any request does; a GET never does.
"""

from __future__ import annotations

from sparkdash.domain.engine import EngineState
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.route import Route, raw_route
from sparkdash.gateway.relay import passthrough
from sparkdash.gateway.relay.remote import is_remote
from sparkdash.limits import shown


async def serve_raw(deps: Deps, exchange: Exchange) -> None:
    """Relay one request to the engine that its path names."""
    try:
        route = _route(deps, exchange)
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await passthrough.relay_request(deps, exchange, route)


def _route(deps: Deps, exchange: Exchange) -> Route:
    catalog = deps.catalog()
    # exact names only: the part after a slash may belong to the engine's path
    route = raw_route(exchange.raw_path, lambda name: catalog.exactly(name) is not None)
    if route is None or route.profile is None:
        path = shown(exchange.raw_path)
        raise problems.status_error(404, f"{path} is not an engine path for clients (/upstream/PROFILE/PATH)")
    if exchange.method == "POST" or exchange.upgraded is not None:
        return route
    found = catalog.find(route.profile)
    if is_remote(found):
        return route
    profile = found.name
    engine = deps.bus.snapshot.engines.get(profile)
    if engine is None or engine.state is not EngineState.READY:
        raise AdmissionError(
            f"{profile} is not loaded, and a {exchange.method} loads nothing.",
            code="not_loaded",
            status=404,
            hint="Start it with `sparkdash use`, or POST to it.",
        )
    return route
