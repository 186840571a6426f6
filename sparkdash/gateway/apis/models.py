"""Items of GET /v1/models: a Snapshot in, JSON out.

Rule: `context` is the *configured* one, right while a profile is not loaded; unknown values are left out.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.profile import AUTO, ProfileSummary, base_name
from sparkdash.domain.state import Snapshot
from sparkdash.engines.model_list import GATEWAY, SIMULATED
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import READ, permitted_name, visible_snapshot
from sparkdash.gateway.apis.ollama_wire import rfc3339
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange, ParsedHead
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay.admitted import NO_CHOICES, Choices, chosen_name

_STATUS = {
    EngineState.READY: "loaded",
    EngineState.DRAINING: "loaded",
    EngineState.CREATING: "loading",
    EngineState.LOADING: "loading",
    EngineState.WARMING: "loading",
}


_CLAUDE_CODE = "claude-code/"
"""Prefix of its User-Agent. Its picker shows only names with `claude` or `anthropic` in them (seen with 2.1.329)."""


def list_models(snapshot: Snapshot, user_agent: str = "", choices: Choices = NO_CHOICES) -> dict[str, Any]:
    """List every profile that can run, each followed by its aliases and modes, then names for several profiles
    (`choices`), then `auto`.

    The running profile comes first, as clients without a default take the first. The list is one page, also in
    Anthropic's format.
    """
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
    """List the profiles that can run here, the running one first. Replicas go by their profile's name."""
    active = base_name(snapshot.active.profile) if snapshot.active else None
    found = [each for each in snapshot.profiles if each.cannot_run is None and base_name(each.name) == each.name]
    return sorted(found, key=lambda profile: profile.name != active)


def model_names(profile: ProfileSummary) -> tuple[str, ...]:
    return (profile.name, *profile.serves, *(f"{profile.name}:{mode}" for mode in profile.modes))


def model_item(snapshot: Snapshot, profile: ProfileSummary, name: str) -> dict[str, Any]:
    engine = engine_of(snapshot, profile.name)
    return {
        **_common(snapshot, name, _about(profile), engine),
        "root": profile.name,
        **_context(profile.context),
        "architecture": {
            "input_modalities": ["text", "image"] if profile.sees else ["text"],
            "output_modalities": ["text"],
        },
        # a remote model answers at once
        "status": {"value": "loaded"} if profile.engine.is_remote else engine_status(engine),
    }


def engine_of(snapshot: Snapshot, name: str) -> Engine | None:
    """Return the profile's engine; of several replicas one that runs, if any does."""
    found = [each for each in snapshot.engines.values() if name in (each.profile, base_name(each.profile))]
    return min(found, key=lambda engine: engine.state is not EngineState.READY, default=None)


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
    """Return the description; that of a simulated engine says so, also to a bench that knows our URL alone."""
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
    """Build the keys for the context: the first for vLLM's and SGLang's clients, then OpenRouter's and llama.cpp's."""
    if context is None:
        return {}
    return {"max_model_len": context, "context_length": context, "meta": {"n_ctx": context}}


def engine_status(engine: Engine | None) -> dict[str, Any]:
    """Return an engine's status as llama.cpp's router does: a failed load is "unloaded" with an exit code."""
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
    if exchange.method not in READ:
        await exchange.refuse_method("The model list", READ)
        return
    await deps.refresh()
    try:
        snapshot = visible_snapshot(exchange.key, deps.bus.snapshot)
        body = _told(deps, exchange, snapshot, name)
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await exchange.answer(200, problems.encode_json(body), _JSON)


def _told(deps: Deps, exchange: Exchange, snapshot: Snapshot, name: str) -> dict[str, object]:
    """Return one model, or the list for an empty `name`."""
    if not name:
        return list_models(snapshot, exchange.head.agent, deps.choices())
    if name == AUTO:
        return auto_item(snapshot)
    words, catalog = deps.choices().get(name), deps.catalog()
    if words and catalog.exactly(name) is None and (item := choice_item(snapshot, name, words)):
        return item
    found = catalog.find(permitted_name(exchange.key, name, catalog, lambda: snapshot)).name
    summary = snapshot.profile(found)
    if summary is None or summary.cannot_run is not None:
        why = summary.cannot_run if summary else "it is not in the list yet"
        raise AdmissionError(f"Profile {found!r} cannot run: {why}.", code="model_not_found", status=404)
    return model_item(snapshot, summary, name)
