"""Identification of the server at a URL: its engine, a sparkdash gateway before it, the request keys that it takes.

Owns: what is asked to find that out, and what of the answers is believed. Must not know: cells, order, files.
Rule 1: a gateway's own word counts before the list of models, which shows the gateway and not the engine.
Rule 2: what stays unknown is None. A server of unknown kind gets the keys that force a length and count tokens once it
has taken them in a request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.state import Snapshot
from sparkdash.engines import measuring
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import SparkdashError, UpstreamError

PROBE_TOKENS = 24
PROBE = "Reply with the single word yes."
"""A request whose answer has more tokens than one word only where its length is forced."""
UNMANAGED = frozenset({EngineKind.OPENAI, EngineKind.REMOTE, EngineKind.GENERIC})
"""Kinds of a gateway's profiles behind which any engine may be."""


@dataclass(frozen=True, slots=True)
class UrlServer:
    """Facts about the server at a URL; None: it does not say."""

    model: str
    kind: EngineKind
    """Kind of the engine; `openai` when unknown."""
    simulated: bool
    gateway: str | None = None
    """Gateway before the engine: `sparkdash 0.4.0`."""
    profile: str | None = None
    """Name of the gateway's profile."""
    facts: Mapping[str, Any] | None = None
    """The gateway's own facts about the engine, as fields of Provenance."""
    keys: EngineKind | None = None
    """Kind whose request keys the server took; None: the keys of its own kind."""


async def identify(client: BenchClient, wanted: str | None) -> UrlServer:
    """Find out who answers at the client's URL. `wanted` is the model to measure; None: the first that is listed.

    Raises:
        UpstreamError: nobody answers, or no OpenAI-compatible server does.
    """
    cards = await _models(client)
    model = wanted or next(iter(measuring.served_models(cards)), None)
    if model is None:
        raise UpstreamError(f"{client.url} lists no model.", hint="Name one with --model.")
    simulated = measuring.is_simulated(cards, model)
    if measuring.is_gateway(cards):
        return await _behind_gateway(client, cards, model, simulated=simulated)
    kind = measuring.engine_kind_of(cards)
    keys = await _taken_keys(client, model) if kind is EngineKind.OPENAI else None
    return UrlServer(model, kind, simulated, keys=keys)


async def _models(client: BenchClient) -> Mapping[str, Any]:
    try:
        cards = json.loads(await client.get("/v1/models"))
    except ValueError:
        cards = None
    if not isinstance(cards, dict):
        raise UpstreamError(f"{client.url}/v1/models returns no model list. This is not an OpenAI-compatible server.")
    return cards


async def _behind_gateway(client: BenchClient, cards: Mapping[str, Any], model: str, *, simulated: bool) -> UrlServer:
    """Ask a sparkdash gateway for the profile behind a model's name."""
    name = measuring.root_of(cards, model)
    profile = await _told(client, f"/api/profiles/{quote(name, safe='/')}")
    world = await _told(client, "/api/state")
    daemon = _within(world, "daemon")
    gateway = f"sparkdash {daemon.get('version') or ''}".strip()
    kind = _kind(profile.get("engine"))
    if kind is None or kind in UNMANAGED:
        keys = await _taken_keys(client, model)
        return UrlServer(model, EngineKind.OPENAI, simulated, gateway, name, _facts(profile, world, name), keys)
    return UrlServer(model, kind, simulated, gateway, name, _facts(profile, world, name))


async def _told(client: BenchClient, path: str) -> Mapping[str, Any]:
    """Return the JSON object of a control route; empty where the gateway refuses it, as to a key for some models."""
    try:
        found = json.loads(await client.get(path))
    except (SparkdashError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _facts(profile: Mapping[str, Any], world: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what profile and state say of the engine, by the names of Provenance."""
    engine = _within(_within(world, "engines"), name)
    gpu = _within(_within(world, "sample"), "gpu")
    target = _within(_within(profile, "models"), "target")
    template = _within(_within(profile, "request"), "chat_template_kwargs")
    told = {
        **_launch_facts(profile, engine),
        "engine_version": engine.get("version"),
        "image": profile.get("image"),
        "model": target.get("ref"),
        "model_revision": target.get("revision"),
        "driver": gpu.get("driver"),
    }
    thinking = template.get("enable_thinking")
    texts = {key: value for key, value in told.items() if isinstance(value, str)}
    return texts | ({"thinking": thinking} if isinstance(thinking, bool) else {})


def _launch_facts(profile: Mapping[str, Any], engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return fingerprint and speculation; neither of a profile that this version cannot read, as a fingerprint without
    speculation means that there is none.
    """
    try:
        known = Profile.model_validate(profile)
    except ValidationError:
        return {}
    return {"fingerprint": engine.get("fingerprint"), "speculation": adapter_of(known).speculation(known)}


def _within(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _kind(value: object) -> EngineKind | None:
    try:
        return EngineKind(str(value))
    except ValueError:
        return None


async def attached_keys(client: BenchClient, model: str, engine_url: str | None) -> EngineKind | None:
    """Return the kind whose request keys an attached server takes: its own by its list of models, else as tried."""
    kind = EngineKind.OPENAI
    if engine_url is not None:
        with suppress(SparkdashError, ValueError):
            cards = json.loads(await client.get("/v1/models", url=engine_url))
            kind = measuring.engine_kind_of(cards) if isinstance(cards, dict) else kind
    return kind if kind is not EngineKind.OPENAI else await _taken_keys(client, model)


async def _taken_keys(client: BenchClient, model: str) -> EngineKind | None:
    """Return VLLM when a server of unknown kind answers a request with vLLM's keys; None when it refuses them."""
    answer = await client.chat(
        {
            "model": model,
            "messages": [{"role": "user", "content": PROBE}],
            "temperature": 0.0,
            **measuring.forced_length(EngineKind.VLLM, PROBE_TOKENS),
            **measuring.uncached_prompt(EngineKind.VLLM, "probe"),
            **measuring.usage_counts(EngineKind.VLLM),
        }
    )
    return None if answer.error or answer.n != PROBE_TOKENS else EngineKind.VLLM


@dataclass(slots=True)
class GatewayState:
    """State of another box's daemon, asked through the bench's own connection."""

    client: BenchClient
    _readable: bool = True

    async def state(self) -> Snapshot:
        """Return its snapshot.

        Raises:
            UpstreamError: nobody answers, the gateway refuses, or another version's state cannot be read.
        """
        if not self._readable:
            raise UpstreamError("Its state cannot be read.")
        try:
            return Snapshot.model_validate_json(await self.client.get("/api/state"))
        except ValidationError:
            self._readable = False
            raise UpstreamError("Its state cannot be read: it is another version of sparkdash.") from None
