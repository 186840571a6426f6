"""Identification of the server at a URL: its engine, and the request keys that it takes.

A server of unknown kind gets the keys that force a length and count tokens once it has taken them in a request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.domain.profile import EngineKind
from sparkdash.engines import model_list
from sparkdash.engines.registry import adapter
from sparkdash.errors import SparkdashError, UpstreamError

PROBE_TOKENS = 24
PROBE = "Reply with the single word yes."
"""A request whose answer has more tokens than one word only where its length is forced."""


@dataclass(frozen=True, slots=True)
class UrlServer:
    """Facts about the server at a URL."""

    model: str
    kind: EngineKind
    """Kind of the engine; `openai` when unknown."""
    simulated: bool
    keys: EngineKind | None = None
    """Kind whose request keys the server took; None: the keys of its own kind."""


async def identify(client: BenchClient, wanted: str | None) -> UrlServer:
    """Find out who answers at the client's URL. `wanted` is the model to measure; None: the first that is listed.

    Raises:
        UpstreamError: nobody answers, or no OpenAI-compatible server does.
    """
    cards = await _models(client)
    model = wanted or next(iter(model_list.served_models(cards)), None)
    if model is None:
        raise UpstreamError(f"{client.url} lists no model.", hint="Name one with --model.")
    simulated = model_list.is_simulated(cards, model)
    kind = model_list.engine_kind_of(cards)
    keys = await _taken_keys(client, model) if kind.is_external else None
    return UrlServer(model, kind, simulated, keys)


async def _models(client: BenchClient) -> Mapping[str, Any]:
    try:
        cards = json.loads(await client.get("/v1/models"))
    except ValueError:
        cards = None
    if not isinstance(cards, dict):
        raise UpstreamError(f"{client.url}/v1/models returns no model list. This is not an OpenAI-compatible server.")
    return cards


async def attached_keys(client: BenchClient, model: str, engine_url: str | None) -> EngineKind | None:
    """Return the kind whose request keys an attached server takes: its own by its list of models, else as tried."""
    kind = EngineKind.OPENAI
    if engine_url is not None:
        with suppress(SparkdashError, ValueError):
            cards = json.loads(await client.get("/v1/models", url=engine_url))
            kind = model_list.engine_kind_of(cards) if isinstance(cards, dict) else kind
    return await _taken_keys(client, model) if kind.is_external else kind


async def _taken_keys(client: BenchClient, model: str) -> EngineKind | None:
    """Return VLLM when a server of unknown kind answers a request with vLLM's keys; None when it refuses them."""
    vllm = adapter(EngineKind.VLLM)
    answer = await client.chat(
        {
            "model": model,
            "messages": [{"role": "user", "content": PROBE}],
            "temperature": 0.0,
            **vllm.forced_length(PROBE_TOKENS),
            **vllm.uncached_prompt("probe"),
            **vllm.usage_counts(),
        }
    )
    return None if answer.error or answer.n != PROBE_TOKENS else EngineKind.VLLM
