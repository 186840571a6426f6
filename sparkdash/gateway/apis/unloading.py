"""Unloading: a client of Ollama's or llama-swap's API names a model and stops its engine, as far as it may."""

import asyncio

from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.gateway.admission import access
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.relay.admitted import resolve_model
from sparkdash.keyring import Scope
from sparkdash.units import counted


def wanted_name(deps: Deps, exchange: Exchange, model: str) -> str:
    """Return what the client's word for a model means to the supervisor. Raises AdmissionError, as `permitted_name`."""
    catalog = deps.catalog()
    wanted, _ = resolve_model(model, catalog, deps.settings.model_names, deps.choices(), lambda: deps.bus.snapshot)
    return access.permitted_name(exchange.key, wanted, catalog, lambda: deps.bus.snapshot)


async def unload_model(deps: Deps, exchange: Exchange, profile: str | None) -> None:
    """Stop an engine that nobody uses; None: all engines. Who may control the box may do it.

    Raises:
        AdmissionError: 403 `not_the_owner`, `scope_refused`, `whole_box_refused`; 409 `in_use`.
    """
    await refuse_unloading(exchange)
    await stop_unused(deps, profile)


async def refuse_unloading(exchange: Exchange) -> None:
    """Raises AdmissionError for a client that may not unload. To be asked while the client is still connected."""
    if (key := exchange.key) is not None:
        access.refuse_scope(key, Scope.CONTROL)
    elif not exchange.head.unix:
        await asyncio.to_thread(access.refuse_other_users, *exchange.ends())


async def stop_unused(deps: Deps, profile: str | None) -> None:
    users = [row for row in deps.bus.snapshot.requests.values() if profile in (None, row.profile)]
    if users:
        raise AdmissionError(
            f"{profile or 'The box'} has {counted(len(users), 'request')}, so nothing was unloaded.",
            code="in_use",
            status=409,
            hint="Try again once they have ended; `sparkdash stop` does not wait for them.",
        )
    await deps.supervisor.stop(profile, cause=SwapCause.USER)
