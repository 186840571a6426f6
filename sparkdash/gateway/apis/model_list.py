"""GET /v1/models and /v1/models/NAME."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import unquote

from sparkdash.access.key import Key
from sparkdash.domain.profile import AUTO
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import permitted_name, visible_snapshot
from sparkdash.gateway.admission.rights import READ
from sparkdash.gateway.apis import models
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.http.parsed_head import ParsedHead
from sparkdash.gateway.protocol import problems

_JSON = [(b"content-type", b"application/json")]


def model_list_handler(head: ParsedHead) -> Callable[[Deps, Exchange], Awaitable[None]] | None:
    """Return the handler of a model path; None for any other path."""
    path = unquote(head.raw_path).rstrip("/").removeprefix("/v1")
    if path == "/models":
        return partial(_serve, name="")
    return partial(_serve, name=path.removeprefix("/models/")) if path.startswith("/models/") else None


async def _serve(deps: Deps, exchange: Exchange, name: str) -> None:
    """Answer with one model, or with the list for an empty `name`."""
    if exchange.method not in READ:
        await exchange.refuse_method("The model list", READ)
        return
    await deps.refresh()
    try:
        snapshot = visible_snapshot(exchange.key, deps.bus.snapshot)
        body = (
            _model(deps, exchange.key, snapshot, name)
            if name
            else models.list_models(snapshot, exchange.head.agent, deps.choices())
        )
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await exchange.answer(200, problems.encode_json(body), _JSON)


def _model(deps: Deps, key: Key | None, snapshot: Snapshot, name: str) -> dict[str, object]:
    if name == AUTO:
        return models.auto_item(snapshot)
    words = deps.choices().get(name)
    if words and deps.catalog().exactly(name) is None and (item := models.choice_item(snapshot, name, words)):
        return item
    catalog = deps.catalog()
    found = catalog.find(permitted_name(key, name, catalog, lambda: snapshot)).name
    summary = snapshot.profile(found)
    if summary is None or summary.cannot_run is not None:
        why = summary.cannot_run if summary else "it is not in the list yet"
        raise AdmissionError(f"Profile {found!r} cannot run: {why}.", code="model_not_found", status=404)
    return models.model_item(snapshot, summary, name)
