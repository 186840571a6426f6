"""Routes of a simulated engine."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import sparkdash
from sparkdash.domain.profile import Profile, SimSpec
from sparkdash.engines import argv
from sparkdash.sim import formats, prompt, prose
from sparkdash.sim.engine import RefusedError, SimulatedEngine, bad_json, too_long, too_many, unknown_model
from sparkdash.sim.faults import Behaviour, behaviour
from sparkdash.sim.formats import NEWER, PROTOCOLS, GeneratedAnswer, GenerationRoute, compact
from sparkdash.sim.http_server import HttpRequest, HttpResponse
from sparkdash.sim.metrics import SimulatedGauges, exposition
from sparkdash.sim.speed import PrefixCache, SimulatedTiming, SimulationClock, token_id, tokenize
from sparkdash.units import GIB

KV_SHARE = 0.25
"""Share of an engine's memory that its KV cache takes, when the profile does not say."""
SEATS = 16
"""Default number of concurrent requests (the profile's max-num-seqs overrides it); the usual maximum on a Spark."""
FILLING = b" padding"
Route = Callable[[HttpRequest], Awaitable[HttpResponse]]


class App:
    """Routes of one profile's engine. `handle` goes to the HTTP server, `engine.run` to a task."""

    def __init__(self, profile: Profile, clock: SimulationClock | None = None) -> None:
        """Raises ProfileError for a fault that the zoo does not know."""
        spec = profile.sim or SimSpec()
        self.profile = profile
        self.served = argv.served_names(profile)
        cache = PrefixCache(spec.kv_tokens)
        self.context = min(profile.context or spec.kv_tokens, cache.capacity)
        clock = clock or SimulationClock()
        seats = argv.parse_token_count(argv.lookup(profile.args, "max-num-seqs")) or SEATS
        self.engine = SimulatedEngine(SimulatedTiming(spec), cache, clock, seats=seats)
        self._fault = behaviour(spec.fault)
        self._fault_after_tokens = spec.fault_after_tokens or 0
        self.engine.on_tokens = self._produced
        self._produced(0)
        self._kv_bytes = int(kv_share(profile) * spec.memory_gib * GIB)
        self._created = int(time.time())
        self._routes: dict[str, dict[str, Route]] = {
            "/health": {"GET": self._empty},
            "/version": {"GET": self._version},
            "/metrics": {"GET": self._metrics},
            "/v1/models": {"GET": self._models},
            "/v1/messages/count_tokens": {"POST": self._count},
            "/v1/embeddings": {"POST": self._embeddings},
            "/tokenize": {"POST": self._tokenize},
        }
        for path, protocol in PROTOCOLS.items():
            self._routes[path] = {"POST": partial(self._generate, protocol)}
        if self.behaviour.only_chat:
            for path in NEWER:
                del self._routes[path]

    @property
    def behaviour(self) -> Behaviour:
        return self.engine.behaviour

    def _produced(self, tokens: int) -> None:
        """Begin the fault with this token of an answer, or at once where none is named."""
        if tokens >= self._fault_after_tokens:
            self.engine.behaviour = self._fault

    async def handle(self, request: HttpRequest) -> HttpResponse:
        methods = self._routes.get(request.path.rstrip("/") or "/")
        if methods is None:
            return HttpResponse(b'{"detail":"Not Found"}', 404)
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            return HttpResponse(b'{"detail":"Method Not Allowed"}', 405)
        try:
            return await route(request)
        except RefusedError as refusal:
            return HttpResponse(refusal.body(), refusal.status)

    async def _generate(self, protocol: GenerationRoute, request: HttpRequest) -> HttpResponse:
        body = self._body(request)
        ask = protocol.read(body)
        answer = self._begin(body, ask)
        if ask.stream:
            chunks = _guarded(answer, protocol.stream(answer, body))
            return HttpResponse(chunks, content_type="text/event-stream; charset=utf-8")
        try:
            await answer.whole()
        finally:
            answer.drop()
        return HttpResponse(protocol.whole(answer))

    def _begin(self, body: dict[str, Any], ask: prompt.GenerationRequest) -> GeneratedAnswer:
        tokens = tokenize(ask.text)
        if ask.limit is not None and ask.limit > self.context:
            raise too_many(ask.limit, self.context)
        if len(tokens) + (ask.limit or 1) > self.context:
            raise too_long(self.context, len(tokens), ask.limit)
        seed = f"{ask.seed}/{ask.text}"
        limit = ask.limit or self.context - len(tokens)
        if self.behaviour.prefill_s:
            limit = min(limit, self.context // 8)
            tokens += [FILLING] * (self.context - len(tokens) - limit)
        words = prose.cut_answer(*self._words(ask, seed), limit=limit, stops=ask.stops)
        run = self.engine.submit(tokens, words, limit=limit, seed=seed)
        thinks = (self.profile.sim or SimSpec()).reasoning_tokens if _may_think(body) else 0
        return GeneratedAnswer(self.engine, run, str(body.get("model")), reasoning_tokens=thinks, call=ask.orders.call)

    def _words(self, ask: prompt.GenerationRequest, seed: str) -> tuple[Iterator[bytes], int | None]:
        """Return (tokens of the answer, number after which it ends by itself)."""
        if ask.orders.call:
            arguments = tokenize(ask.orders.call.arguments)
            return iter(arguments), len(arguments)
        length = ask.orders.tokens or max(prose.natural_length(seed), ask.min_tokens)
        said = prose.answer_tokens(self.profile.name, seed, ask.orders.returned)
        return said, None if ask.ignore_eos else length

    def _json(self, request: HttpRequest) -> dict[str, Any]:
        try:
            body = json.loads(request.body)
        except UnicodeDecodeError:
            raise bad_json(0) from None
        except json.JSONDecodeError as error:
            raise bad_json(error.pos) from None
        if not isinstance(body, dict):
            raise bad_json(0)
        return body

    def _body(self, request: HttpRequest) -> dict[str, Any]:
        body = self._json(request)
        model = body.get("model")
        if model is not None and model not in self.served:
            raise unknown_model(str(model), self.served)
        body["model"] = model or self.profile.name
        return body

    async def _empty(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse(content_type=None)

    async def _version(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse(compact({"version": f"{sparkdash.__version__}+sim"}))

    async def _metrics(self, _: HttpRequest) -> HttpResponse:
        page = exposition(self.engine.counters, self.gauges())
        return HttpResponse(page.encode(), content_type="text/plain; version=1.0.0; charset=utf-8")

    def gauges(self) -> SimulatedGauges:
        engine, cache = self.engine, self.engine.cache
        return SimulatedGauges(
            model=self.profile.name, running=len(engine.running), waiting=len(engine.waiting), kv_usage=cache.usage,
            block=cache.block, blocks=cache.blocks, context=self.context, kv_bytes=self._kv_bytes,
        )  # fmt: skip

    async def _models(self, _: HttpRequest) -> HttpResponse:
        cards: list[dict[str, Any]] = [
            {
                "id": name, "object": "model", "created": self._created, "owned_by": "sparkdash-sim",
                "root": self.profile.name, "parent": None, "max_model_len": self.context, "permission": [],
            }
            for name in self.served
        ]  # fmt: skip
        return HttpResponse(compact({"object": "list", "data": cards}))

    async def _count(self, request: HttpRequest) -> HttpResponse:
        body = self._body(request)
        turns = [{"role": "system", "content": body["system"]}] if body.get("system") else []
        return HttpResponse(compact({"input_tokens": len(tokenize(prompt.counted_prompt(body, turns)))}))

    async def _tokenize(self, request: HttpRequest) -> HttpResponse:
        body = self._body(request)
        text = body["prompt"] if isinstance(body.get("prompt"), str) else prompt.counted_prompt(body)
        ids = [token_id(token) for token in tokenize(text)]
        told = {"count": len(ids), "max_model_len": self.context, "tokens": ids, "token_strs": None}
        return HttpResponse(compact(told))

    async def _embeddings(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(compact(formats.embed(self._body(request))))


def _may_think(body: dict[str, Any]) -> bool:
    """Whether the request leaves thinking on, in the words of the models' templates."""
    kwargs = body.get("chat_template_kwargs")
    return not (isinstance(kwargs, dict) and False in (kwargs.get("enable_thinking"), kwargs.get("thinking")))


def kv_share(profile: Profile) -> float:
    """Return the share of the engine's memory that is KV cache, as far as the profile tells."""
    need = profile.memory
    if need.total_bytes and need.kv_gib is not None:
        return need.kv_gib * GIB / need.total_bytes
    return KV_SHARE


async def _guarded(answer: GeneratedAnswer, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks; a client that leaves aborts its request at once."""
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        answer.drop()
