"""Admission of a request whose body is understood: its model, its key's models, its urgency.

Owns: what is refused before a request waits. Must not know how it waits, nor how its body was read.
"""

from __future__ import annotations

from sparkdash.domain.profile import AUTO
from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission.access import may_see, permitted_name
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.peek import PeekedBody, is_batch
from sparkdash.gateway.protocol.route import Route
from sparkdash.gateway.relay.model_names import find_profile, resolve_model
from sparkdash.gateway.relay.request_context import RequestContext
from sparkdash.gateway.relay.served_routes import refuse_unserved
from sparkdash.gateway.shared.body_budget import BodyShare
from sparkdash.gateway.shared.upload import Upload
from sparkdash.limits import shown

AGENT_KEPT = 200
"""Characters of a User-Agent that identify a client."""


def admit_request(
    deps: Deps,
    exchange: Exchange,
    route: Route,
    body_share: BodyShare,
    peeked: PeekedBody,
    upload: Upload | None = None,
) -> RequestContext:
    """Find what the request's model means, and whether it may have it. `upload`: its body, where it is on disk.

    Raises:
        AdmissionError: `model_missing`, `invalid_priority`, `route_not_served`, `held`, or what a key may not use.
    """
    head, key = exchange.head, exchange.key
    batch = is_batch(head.priority, peeked.service_tier, by_key=key is not None and key.batch)
    if peeked.model is None and route.needs_model:
        raise _no_model(route)
    catalog = deps.catalog()
    asked = route.profile or peeked.model or AUTO
    name, profile = resolve_model(
        asked,
        catalog,
        deps.settings.model_names,
        deps.choices(),
        lambda: deps.bus.snapshot,
        lambda one: may_see(key, one),
    )
    if key is not None:
        name = permitted_name(key, name, catalog, lambda: deps.bus.snapshot, route.task)
        profile = find_profile(name, catalog)
    refuse_unserved(profile, route)
    deps.exclusive.admit(head.token)
    return RequestContext(deps, exchange, route, body_share, peeked, name, profile, batch, upload)


def _no_model(route: Route) -> AdmissionError:
    return AdmissionError(
        f"The request to {route.path} names no model.",
        code="model_missing",
        hint='Add "model": the name of a profile (GET /v1/models lists them), or "auto" for whatever runs now.',
    )


def client_identity(exchange: Exchange) -> str | None:
    """Identify the client by its key and its User-Agent."""
    agent, key = exchange.head.agent[:AGENT_KEPT], exchange.key
    return f"{key.name} {agent}" if key is not None else agent or None


def row_profile(context: RequestContext) -> str:
    """Name the profile in the row until a lease tells it: the profile of the client's word, or the word itself."""
    if context.profile is not None:
        return context.profile.name
    runs = context.deps.bus.snapshot.auto(context.route.task) if context.name == AUTO else None
    return runs or shown(context.name)
