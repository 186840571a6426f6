"""llama.cpp's router API over our profiles, for clients that manage a server with many models.

Owns: /models/sse, /models/load, /models/unload, and /props and /slots of a model by name.
Must not decide: the supervisor does.
Rule: asking never loads anything. What only llama.cpp knows comes from its engine, and only while that runs.
Source of the shapes: llama.cpp's tools/server (router mode, mid 2026) and its client in Zed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged, Event, ProfilesChanged, SwapChanged
from sparkdash.domain.profile import AUTO, EngineKind, Profile, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import key_check
from sparkdash.gateway.admission.guard import check_json
from sparkdash.gateway.apis import models
from sparkdash.gateway.apis.abilities import takes_tools
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http import event_feed
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.http.flow_control import ClientGone
from sparkdash.gateway.http.parsed_head import ParsedHead
from sparkdash.gateway.ports import BusPort
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.peek import peek_body
from sparkdash.gateway.protocol.route import Route
from sparkdash.gateway.relay import passthrough
from sparkdash.limits import CONTROL_BODY_MIB

STAGE = "text_model"
"""The one stage of a load that is told: the clients' own word for the weights, here for the whole way."""
_JSON = [(b"content-type", b"application/json")]

Handler = Callable[[Deps, Exchange], Awaitable[None]]


def router_handler(head: ParsedHead) -> Handler | None:
    """Return the handler of a router path; None for any other path."""
    path = head.raw_path.rstrip("/").removeprefix("/v1")
    found = _ROUTES.get(path)
    if found is None:
        return None
    methods, answer = found
    return answer if head.method in methods else partial(_refuse_method, path=path, methods=methods)


async def _refuse_method(_deps: Deps, exchange: Exchange, *, path: str, methods: frozenset[str]) -> None:
    await exchange.refuse_method(path, methods)


# --- /models/sse ------------------------------------------------------------------------------------------------


async def _events(deps: Deps, exchange: Exchange) -> None:
    """Send every model's status, then each change, until the client leaves."""
    holds = key_check(exchange.key, deps.keys, deps.clock)
    await event_feed.serve_feed(deps.bus, ModelStatusEncoder(deps.bus), exchange, holds=holds, samples=False)


class ModelStatusEncoder:
    """Encodes status changes for one listener, which hears of a model again only when its status changed."""

    def __init__(self, bus: BusPort) -> None:
        self._bus = bus
        self._last: dict[str, dict[str, Any]] = {}

    def __call__(self, item: Event | Snapshot) -> bytes:
        """Encode one item of the bus; empty when no status changed."""
        if isinstance(item, Event) and not isinstance(item.fact, EngineChanged | SwapChanged | ProfilesChanged):
            return b""
        return b"".join(self._news(self._bus.snapshot))

    def _news(self, snapshot: Snapshot) -> Iterator[bytes]:
        for profile in models.runnable(snapshot):
            status = _data(snapshot, profile)
            last = self._last.get(profile.name)
            if status != last:
                self._last[profile.name] = status
                word = "model_status" if last is None else "status_change"
                body = {"model": profile.name, "event": word, "data": status}
                yield b"data: " + problems.encode_json(body) + b"\n\n"


def _data(snapshot: Snapshot, profile: ProfileSummary) -> dict[str, Any]:
    status = models.model_status(snapshot, profile)
    value = status.pop("value")
    swap = snapshot.swap_to(profile.name)
    if swap is None or value == "loaded":
        return {"status": value, **status}
    progress: dict[str, Any] = {"stages": [STAGE], "current": STAGE}
    if swap.fraction is not None:
        progress["value"] = round(swap.fraction, 2)
    return {"status": "loading", "progress": progress}


# --- /models/load, /models/unload -------------------------------------------------------------------------------


async def _load(deps: Deps, exchange: Exchange) -> None:
    """Load a model as `sparkdash use` does; answer before it is up. /models/sse tells the rest."""

    async def use(name: str) -> None:
        deps.exclusive.admit(exchange.head.token)
        await deps.refresh()
        await deps.supervisor.use(name, cause=SwapCause.USER)

    await _act(deps, exchange, use)


async def _unload(deps: Deps, exchange: Exchange) -> None:
    """Stop a model's engine as `sparkdash stop` does; answer before it is gone."""
    await _act(deps, exchange, partial(deps.supervisor.stop, wait=False))


async def _act(deps: Deps, exchange: Exchange, act: Callable[[str], Awaitable[None]]) -> None:
    try:
        check_json(exchange.head.content_type)
        with deps.body_budget.share() as share:
            body = await exchange.body(CONTROL_BODY_MIB, share, deps.settings.body_s)
        name = peek_body(body, exchange.head.content_type).model
        if name is None:
            raise AdmissionError("The request names no model.", code="model_missing", hint='Send {"model": "NAME"}.')
        await act(name)
    except ClientGone:
        return
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await exchange.answer(200, problems.encode_json({"success": True}), _JSON)


# --- /props, /slots ---------------------------------------------------------------------------------------------


async def _props(deps: Deps, exchange: Exchange) -> None:
    """Answer with the engine's own props where llama.cpp runs, else with what is known without asking it.

    Without a model's name and without a llama.cpp engine, the router's own props are the answer.
    """
    name = _asked_name(exchange)
    if name is None and _active(deps, EngineKind.LLAMACPP) is None:
        await exchange.answer(200, problems.encode_json(_ROUTER), _JSON)
        return
    try:
        profile = _meant(deps, name)
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    if _serves_itself(deps, profile):
        await passthrough.relay_request(deps, exchange, Route("/props", profile=profile.name))
        return
    await exchange.answer(200, problems.encode_json(_known_props(deps.bus.snapshot, profile)), _JSON)


async def _slots(deps: Deps, exchange: Exchange) -> None:
    try:
        profile = _meant(deps, _asked_name(exchange))
        if not _serves_itself(deps, profile):
            raise AdmissionError(
                f"{profile.name} has no slots to show: it is not llama.cpp, or it is not loaded.",
                code="not_supported_error",
                status=501,
            )
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await passthrough.relay_request(deps, exchange, Route("/slots", profile=profile.name))


def _asked_name(exchange: Exchange) -> str | None:
    return next(iter(parse_qs(exchange.query).get("model", ())), None)


def _meant(deps: Deps, name: str | None) -> Profile:
    active = deps.bus.snapshot.active
    if name not in (None, "", AUTO):
        return deps.catalog().find(str(name))
    if active is None:
        raise AdmissionError(
            "No model is loaded.", code="model_not_found", status=404, hint="Name one: ?model=NAME (GET /v1/models)."
        )
    return deps.catalog().find(active.profile)


def _active(deps: Deps, kind: EngineKind) -> str | None:
    active = deps.bus.snapshot.active
    return active.profile if active is not None and active.kind is kind else None


def _serves_itself(deps: Deps, profile: Profile) -> bool:
    engine = deps.bus.snapshot.engines.get(profile.name)
    return engine is not None and engine.state is EngineState.READY and engine.kind is EngineKind.LLAMACPP


_ROUTER: dict[str, Any] = {
    "role": "router",
    "model_alias": "sparkdash",
    "model_path": "none",
    "models_autoload": True,
    "default_generation_settings": {"params": {}, "n_ctx": 0},
}
"""Props of the router itself, as llama.cpp's router gives them: the values say that it has no model."""


def _known_props(snapshot: Snapshot, profile: Profile) -> dict[str, Any]:
    """Build the props of a model that is not asked.

    Zed offers its tools to a loaded model only if these say that it takes them; older clients read `supports_tools`.
    """
    summary = snapshot.profile(profile.name)
    context = summary.context if summary is not None else None
    tools = takes_tools(profile)
    return {
        "model_alias": profile.name,
        "default_generation_settings": {"params": {}} | ({} if context is None else {"n_ctx": context}),
        "chat_template_caps": {"supports_tool_calls": tools, "supports_tools": tools},
        **({"modalities": {"vision": summary.sees}} if summary is not None and summary.sees is not None else {}),
    }


_READ = frozenset({"GET", "HEAD"})
_POST = frozenset({"POST"})
_ROUTES: dict[str, tuple[frozenset[str], Handler]] = {
    "/models/sse": (frozenset({"GET"}), _events),
    "/models/load": (_POST, _load),
    "/models/unload": (_POST, _unload),
    "/props": (_READ, _props),
    "/slots": (_READ, _slots),
}
