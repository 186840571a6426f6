"""Items of GET /v1/models.

A Snapshot in, JSON out.
Rule: `context` is the *configured* one, so that it is right while a profile is not loaded; unknown values are left
out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.profile import AUTO, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.engines.model_list import GATEWAY, SIMULATED
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import READ, permitted_name, visible_snapshot
from sparkdash.gateway.apis import models
from sparkdash.gateway.apis.ollama_wire import rfc3339
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange, ParsedHead
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay.admitted import NO_CHOICES, Choices, chosen_name
from sparkdash.keyring import Key

_STATUS = {
    EngineState.READY: "loaded",
    EngineState.DRAINING: "loaded",
    EngineState.CREATING: "loading",
    EngineState.LOADING: "loading",
    EngineState.WARMING: "loading",
}


_CLAUDE_CODE = "claude-code/"
"""Prefix of its User-Agent. Its picker shows only names with `claude` or `anthropic` in them (measured with 2.1.329).
"""


def list_models(snapshot: Snapshot, user_agent: str = "", choices: Choices = NO_CHOICES) -> dict[str, Any]:
    """List every profile that can run, each followed by its aliases and modes, then names for several profiles
    (`choices`), then `auto`. The running profile comes first, as clients without a default take the first. The list is
    one page, also in Anthropic's format."""
    items = [model_item(snapshot, profile, name) for profile in runnable(snapshot) for name in model_names(profile)]
    if user_agent.startswith(_CLAUDE_CODE):
        items += [
            {**model_item(snapshot, profile, f"claude-local/{name}"), "display_name": name}
            for profile in runnable(snapshot)
            for name in model_names(profile)
            if name not in profile.serves
        ]
    items += [item for name in choices if (item := choice_item(snapshot, name, choices[name])) is not None]
    items.append(auto_item(snapshot))
    page = {"has_more": False, "first_id": items[0]["id"], "last_id": items[-1]["id"]}
    # as llama.cpp lists them for Ollama's clients
    for_ollama = [
        {"name": each["id"], "model": each["id"], "type": "model", "description": each["description"]} for each in items
    ]
    return {"object": "list", "data": items, "models": for_ollama, **page}


def runnable(snapshot: Snapshot) -> list[ProfileSummary]:
    """List the profiles that can run here, the running one first."""
    active = snapshot.active.profile if snapshot.active else None
    found = [profile for profile in snapshot.profiles if profile.cannot_run is None]
    return sorted(found, key=lambda profile: profile.name != active)


def model_names(profile: ProfileSummary) -> tuple[str, ...]:
    return (profile.name, *profile.serves, *(f"{profile.name}:{mode}" for mode in profile.modes))


def model_item(snapshot: Snapshot, profile: ProfileSummary, name: str) -> dict[str, Any]:
    engine = snapshot.engines.get(profile.name)
    return {
        **_common(snapshot, name, _about(profile), engine),
        "root": profile.name,
        **_context(profile.context),
        "architecture": {
            "input_modalities": ["text", "image"] if profile.sees else ["text"],
            "output_modalities": ["text"],
        },
        "status": model_status(snapshot, profile),
    }


def auto_item(snapshot: Snapshot) -> dict[str, Any]:
    engine = snapshot.active
    profile = snapshot.profile(engine.profile) if engine else None
    return {
        **_common(snapshot, AUTO, "whatever runs now; never swaps", engine),
        "root": engine.profile if engine else AUTO,
        **_context(profile.context if profile else None),
        "status": engine_status(engine),
    }


def choice_item(snapshot: Snapshot, name: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Build the item of a name that means one of several profiles; None where none of them can run here."""
    names = [profile.name for word in words if (profile := _named(snapshot, word)) is not None]
    found = chosen_name(names, snapshot)
    profile = snapshot.profile(found) if found else None
    if profile is None:
        return None
    about = f"whichever of {', '.join(names)} runs, else {names[0]}"
    return {**model_item(snapshot, profile, name), "description": about}


def _named(snapshot: Snapshot, word: str) -> ProfileSummary | None:
    found = (profile for profile in snapshot.profiles if word == profile.name or word in profile.serves)
    return next((profile for profile in found if profile.cannot_run is None), None)


def _about(profile: ProfileSummary) -> str:
    """Return the description; that of a simulated engine says so.

    A bench that knows this gateway by its URL alone reads it, too.
    """
    about = profile.about or profile.name
    return f"{SIMULATED}: {about}" if profile.simulated and not about.startswith(SIMULATED) else about


def _common(snapshot: Snapshot, name: str, about: str, engine: Engine | None) -> dict[str, Any]:
    created = engine.ready_at if engine and engine.ready_at else snapshot.daemon.started_at
    return {
        "id": name,
        "object": "model",
        "created": int(created),
        "owned_by": GATEWAY,
        "name": name,
        "description": about,
        # Anthropic's SDKs require these; every listed model may be asked
        "type": "model",
        "display_name": name,
        "created_at": rfc3339(created),
        "lifecycle": "active",
    }


def _context(context: int | None) -> dict[str, Any]:
    """Build the keys for the context: vLLM's and SGLang's clients read the first, OpenRouter's the second, llama.cpp's
    the third."""
    if context is None:
        return {}
    return {"max_model_len": context, "context_length": context, "meta": {"n_ctx": context}}


def model_status(snapshot: Snapshot, profile: ProfileSummary) -> dict[str, Any]:
    """Return the status of a model; a remote one counts as loaded, as it answers at once."""
    return {"value": "loaded"} if profile.engine.is_remote else engine_status(snapshot.engines.get(profile.name))


def engine_status(engine: Engine | None) -> dict[str, Any]:
    """Return an engine's status in the format of llama.cpp's router, where a failed load is "unloaded" with an exit
    code."""
    if engine is None:
        return {"value": "unloaded"}
    told: dict[str, Any] = {"value": _STATUS.get(engine.state, "unloaded")}
    if engine.state is EngineState.FAILED and engine.failure is not None:
        told |= {"failed": True, "exit_code": engine.failure.exit_code or 1}
    return told


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
