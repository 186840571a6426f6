"""Ollama's API for clients that speak nothing else (VS Code's and JetBrains' Ollama, Home Assistant, Codex --oss).

Owns: /api/version, tags, ps, show, chat, generate, embed, pull. A chat goes through `passthrough` as an ordinary
request; ollama_wire translates both ways. Must not know leases, except to load a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sparkdash.access.key import Key
from sparkdash.domain.engine import EngineState
from sparkdash.domain.local_files import Shelf, Stock
from sparkdash.domain.profile import AUTO, Profile, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import permitted_name, visible_error, visible_snapshot
from sparkdash.gateway.apis import abilities, models, ollama_embed, ollama_wire
from sparkdash.gateway.apis.ollama_chat import HEADERS, OllamaChat
from sparkdash.gateway.apis.ollama_wire import OllamaRequest, rfc3339, shape_message
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.http.flow_control import ClientGone
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay.model_names import resolve_model

VERSION = "0.13.4"
"""Version of Ollama's API. Clients test it: Codex wants 0.13.4 at least, VS Code 0.6.4."""


async def serve_ollama(deps: Deps, exchange: Exchange) -> None:
    """Answer one request of Ollama's API."""
    try:
        await _answer(deps, exchange)
    except ClientGone:
        return
    except SparkdashError as error:
        await refuse_ollama(exchange, error)


async def _answer(deps: Deps, exchange: Exchange) -> None:
    word = exchange.head.path.rstrip("/").removeprefix("/api/")
    if word in _READS:
        if exchange.method not in ("GET", "HEAD"):
            exchange.set_extra_headers(((b"allow", b"GET, HEAD"),))
            raise problems.status_error(405, f"/api/{word} takes GET, not {exchange.method}")
        await deps.refresh()
        await _tell(exchange, _READS[word](deps, visible_snapshot(exchange.key, deps.bus.snapshot)))
        return
    if word in _OWNERS:
        raise AdmissionError(
            f"Clients cannot add or remove models here: there is no /api/{word}.",
            code="not_supported",
            hint="Each model is a profile of the owner's: `sparkdash profiles new` writes one.",
        )
    if exchange.method != "POST":
        exchange.set_extra_headers(((b"allow", b"POST"),))
        raise problems.status_error(405, f"/api/{word} takes POST, not {exchange.method}")
    body = await _body(deps, exchange)
    if word == "show":
        await deps.refresh()
        await _tell(exchange, _show(deps, exchange.key, body))
        return
    if word == "pull":
        await _pull(deps, exchange, ollama_wire.model_of(body))
        return
    if word in ollama_embed.WORDS:
        await ollama_embed.relay_embedding(deps, exchange, body, ollama_wire.model_of(body), older=word == "embeddings")
        return
    ask = ollama_wire.parse_ollama_request(body, generate=word == "generate")
    if ask.empty:
        await _load(deps, exchange, ask)
    else:
        await OllamaChat(deps, exchange, ask).relay(ask.model)


async def _body(deps: Deps, exchange: Exchange) -> dict[str, Any]:
    """Read a JSON body of any content type: Ollama's own examples post it as a form."""
    with deps.body_budget.share() as share:
        raw = await exchange.body(deps.settings.body_limit_mib, share, deps.settings.body_s)
    try:
        body = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise AdmissionError(f"The request's body is not JSON: {str(error)[:120]}.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise AdmissionError("The request's body is not a JSON object.", code="invalid_json")
    return body


async def _tell(exchange: Exchange, body: Mapping[str, Any]) -> None:
    await exchange.answer(200, problems.encode_json(dict(body)), HEADERS)


async def refuse_ollama(exchange: Exchange, error: SparkdashError) -> None:
    """Answer with an error in Ollama's format."""
    error = visible_error(exchange.key, error)
    more = [pair for pair in problems.error_headers(error) if pair[0] != b"content-type"]
    await exchange.answer(
        problems.client_status(error), problems.encode_json({"error": problems.error_message(error)}), [*HEADERS, *more]
    )


async def _pull(deps: Deps, exchange: Exchange, name: str) -> None:
    """Say whether a model is on this box. Nothing is downloaded: the disk is its owner's to fill.

    Raises:
        AdmissionError: 404 `model_not_found`; 404 `not_here`: its image or its weights are missing.
    """
    await deps.refresh()
    wanted, _ = resolve_model(
        name, deps.catalog(), deps.settings.model_names, deps.choices(), lambda: deps.bus.snapshot
    )
    wanted = permitted_name(exchange.key, wanted, deps.catalog(), lambda: deps.bus.snapshot)
    profile = deps.catalog().find(wanted).name if wanted != AUTO else _active(deps.bus.snapshot)
    shelf = await deps.shelf(deps.bus.snapshot.profiles) if deps.shelf else Shelf()
    stock = shelf.stock.get(profile, Stock())
    for what, item in (("image is", stock.image), ("weights are", stock.weights)):
        if item is not None and not item.here:
            raise AdmissionError(
                f"The {what} not on this box.",
                code="not_here",
                status=404,
                hint=f"Run `sparkdash pull {profile}` there.",
            )
    await _tell(exchange, {"status": "success"})


async def _load(deps: Deps, exchange: Exchange, ask: OllamaRequest) -> None:
    """Load the model of a request without a prompt; answer when it is loaded."""
    if ask.unload:
        raise AdmissionError(
            "Clients cannot unload models here.", code="not_supported", hint="`sparkdash stop` does it."
        )
    deps.exclusive.admit(exchange.head.token)
    wanted, _ = resolve_model(
        ask.model, deps.catalog(), deps.settings.model_names, deps.choices(), lambda: deps.bus.snapshot
    )
    wanted = permitted_name(exchange.key, wanted, deps.catalog(), lambda: deps.bus.snapshot)
    async with deps.supervisor.lease(wanted, request_id=deps.new_id(), on_wait=lambda _place: None):
        pass
    said = {
        "model": ask.model,
        "created_at": rfc3339(deps.clock()),
        **shape_message({"content": ""}, generate=ask.generate),
    }
    await _tell(exchange, said | {"done_reason": "load", "done": True})


# --- facts about models ------------------------------------------------------------------------------------------


def _version(_deps: Deps, _snapshot: Snapshot) -> dict[str, Any]:
    return {"version": VERSION}


def _tags(deps: Deps, snapshot: Snapshot) -> dict[str, Any]:
    found = models.runnable(snapshot)
    return {"models": [_listed(deps, profile, name) for profile in found for name in models.model_names(profile)]}


def _ps(deps: Deps, snapshot: Snapshot) -> dict[str, Any]:
    """List the loaded models. There is no `expires_at`: no model is unloaded by a request's clock."""
    up = [p for p in models.runnable(snapshot) if _is_up(snapshot, p.name)]
    return {"models": [_listed(deps, p, p.name) | _context(p) for p in up]}


def _is_up(snapshot: Snapshot, profile: str) -> bool:
    engine = snapshot.engines.get(profile)
    return engine is not None and engine.state in (EngineState.READY, EngineState.DRAINING)


def _context(profile: ProfileSummary) -> dict[str, Any]:
    return {} if profile.context is None else {"context_length": profile.context}


def _listed(deps: Deps, profile: ProfileSummary, name: str) -> dict[str, Any]:
    """Build the entry of one model.

    The digest is the profile's fingerprint, which changes with the launch. An unknown size is 0: Zed and JetBrains
    reject a list in which a model has no size.
    """
    weights = _weights(deps, profile.name)
    return {
        "name": name,
        "model": name,
        "modified_at": rfc3339(deps.bus.snapshot.daemon.started_at),
        "size": weights.bytes.total if weights is not None else 0,
        "digest": profile.fingerprint,
        "details": _details(profile.name, weights),
    }


def _details(name: str, weights: WeightFacts | None) -> dict[str, Any]:
    """Build the details of a model. Clients read strings; an unknown one is empty, as in Ollama."""
    family = name.split("/", 1)[0]
    known = {"parent_model": "", "format": "", "family": family, "families": [family]}
    if weights is None:
        return {**known, "parameter_size": "", "quantization_level": ""}
    kept = weights.quantization or weights.dtype or ""
    told = {"parameter_size": _amount(weights.parameters), "quantization_level": _SHORT.get(kept, kept.upper())}
    return {**known, "format": weights.format, **told}


_SHORT = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def _amount(parameters: int | None) -> str:
    if parameters is None:
        return ""
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.1f}M"


def _weights(deps: Deps, name: str) -> WeightFacts | None:
    profile = deps.catalog().profiles.get(name)
    return deps.supervisor.target(profile) if profile is not None else None


def _show(deps: Deps, key: Key | None, body: Mapping[str, Any]) -> dict[str, Any]:
    snapshot = visible_snapshot(key, deps.bus.snapshot)
    word = body.get("model") or body.get("name")
    if not isinstance(word, str):
        raise AdmissionError("The request names no model.", code="model_missing", hint="GET /api/tags lists them.")
    catalog = deps.catalog()
    found = (
        _active(snapshot) if word == AUTO else catalog.find(permitted_name(key, word, catalog, lambda: snapshot)).name
    )
    profile = snapshot.profile(found)
    if profile is None or profile.cannot_run is not None:
        raise AdmissionError(f"Profile {found} cannot run.", code="model_not_found", status=404)
    weights = _weights(deps, found)
    return {
        "modelfile": f"# {profile.about}" if profile.about else "",
        "parameters": "",
        "template": "",
        "details": _details(profile.name, weights),
        "model_info": _model_info(word, profile, weights),
        "capabilities": _capabilities(deps.catalog().find(found), profile),
        "modified_at": rfc3339(snapshot.daemon.started_at),
    }


def _model_info(name: str, profile: ProfileSummary, weights: WeightFacts | None) -> dict[str, Any]:
    """Facts under the keys that GGUF files use for them; unknown ones are left out."""
    known = {
        "general.architecture": "sparkdash",
        "general.basename": name,
        "sparkdash.context_length": profile.context,
        "general.parameter_count": weights and weights.parameters,
        "sparkdash.embedding_length": weights and weights.hidden,
    }
    return {key: value for key, value in known.items() if value is not None}


def _capabilities(profile: Profile, summary: ProfileSummary) -> list[str]:
    can = {"tools": abilities.takes_tools(profile), "thinking": abilities.thinks(profile), "vision": summary.sees}
    return ["completion", *(word for word, does in can.items() if does)]


def _active(snapshot: Snapshot) -> str:
    if snapshot.active is None:
        raise AdmissionError("No model is loaded.", code="model_not_found", status=404)
    return snapshot.active.profile


_OWNERS = frozenset({"push", "create", "copy", "delete"})
_READS: dict[str, Callable[[Deps, Snapshot], dict[str, Any]]] = {"version": _version, "tags": _tags, "ps": _ps}
