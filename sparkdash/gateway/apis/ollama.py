"""Ollama's API for clients that speak nothing else (VS Code's and JetBrains' Ollama, Home Assistant, Codex --oss).

A chat goes through `passthrough` as an ordinary request; ollama_wire translates both ways.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.images import Inventory, Stock
from sparkdash.domain.profile import AUTO, Ability, Profile, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.admission.access import visible_error, visible_snapshot
from sparkdash.gateway.apis import models, ollama_wire
from sparkdash.gateway.apis.ollama_wire import (
    OllamaAnswer,
    OllamaRequest,
    json_line,
    nanoseconds,
    rfc3339,
    shape_message,
)
from sparkdash.gateway.apis.unloading import refuse_unloading, stop_unused, unload_model, wanted_name
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.channel import ClientGone, InnerChannel
from sparkdash.gateway.http.exchange import Exchange, ParsedHead
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay import passthrough
from sparkdash.gateway.relay.request_row import RequestRow
from sparkdash.upstream import engine_error_text
from sparkdash.wire import ResponseHeaders

HEADERS = [(b"content-type", b"application/json; charset=utf-8")]
_LINES = ResponseHeaders(
    [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
)
_UNREADABLE = (SparkdashError, ValueError, RecursionError, TypeError, AttributeError, LookupError)
"""Raised for an error in a stream, and for an answer that has not the shape of OpenAI's."""


def _fault(error: Exception) -> str:
    if isinstance(error, SparkdashError):
        return error.message
    if isinstance(error, json.JSONDecodeError):
        return "The model wrote a tool call whose arguments are not JSON."
    return "The engine's answer has another shape than OpenAI's."


def _head(asked: ParsedHead, path: str) -> ParsedHead:
    headers = [pair for pair in asked.raw_headers if pair[0] != b"content-type"]
    return asked.inner("POST", path, [*headers, (b"content-type", b"application/json")])


class OllamaChat(InnerChannel):
    """Relays a single chat: passthrough speaks OpenAI's protocol with it, the client Ollama's."""

    def __init__(self, deps: Deps, exchange: Exchange, ask: OllamaRequest) -> None:
        """Raises AdmissionError: the request is nested too deeply."""
        try:
            body = problems.encode_json({"model": ask.model, **ask.body})
        except RecursionError:
            raise ollama_wire.too_deep() from None
        super().__init__(body, exchange.channel)
        self._deps = deps
        self._ask = ask
        self._exchange = exchange
        self._row: RequestRow | None = None
        self._translation = OllamaAnswer(self._said, self._final)
        self._begun = deps.monotonic()
        self._first: float | None = None
        self._last = 0.0
        self._framed = False
        """Whether the answer is a stream."""
        self._over = False
        """Whether an error has been sent."""

    async def relay(self) -> None:
        """Relay the request and its whole answer."""
        outer = self._exchange
        inner = Exchange(_head(outer.head, self._ask.path), self, outer.key, collected=True)
        await passthrough.relay_request(self._deps, inner, on_row=self._keep_row)

    def _keep_row(self, row: RequestRow) -> None:
        self._row = row

    def start(self, status: int, told: ResponseHeaders, _length: int | None = None) -> None:
        super().start(status, told)
        kinds = [value for name, value in told.headers if name == b"content-type"]
        self._framed = any(kind.startswith(b"text/event-stream") for kind in kinds)
        if self._framed:
            self._exchange.start(status, _LINES)

    def flush(self) -> None:
        if self._framed:
            self._exchange.flush()

    def write(self, piece: bytes) -> None:
        if self._framed:
            self._exchange.channel.write(self._translated_lines(piece, last=False))
        else:
            self.answer += piece

    def finish(self, last: bytes) -> None:
        if self._framed:
            self._exchange.finish_now(self._translated_lines(last, last=True))
            return
        self.answer += last
        body = self._translated(bytes(self.answer))  # which may set the status
        self._exchange.start(self.status, ResponseHeaders([*HEADERS, *_kept_headers(self.headers)]), len(body))
        self._exchange.finish_now(body)

    def break_off(self, last: bytes) -> None:
        if self._framed:
            self._exchange.break_off(self._translated_lines(last, last=False))
        else:
            self.finish(last)

    def _translated(self, raw: bytes) -> bytes:
        if self.status >= 400:
            return problems.encode_json({"error": engine_error_text(raw)})
        try:
            return self._translation.whole(raw)
        except _UNREADABLE as error:
            self.status = 502
            return problems.encode_json({"error": _fault(error)})

    def _translated_lines(self, piece: bytes, *, last: bool) -> bytes:
        if self._over:
            return b""
        made = bytearray()
        try:
            for line in self._translation.feed(piece):
                made += line
            for line in self._translation.end() if last else ():  # some engines omit [DONE]
                made += line
        except _UNREADABLE as error:
            self._over = True
            made += json_line({"error": _fault(error)})
        return bytes(made)

    def _said(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message["content"] or "thinking" in message:
            self._last = self._deps.monotonic()
            self._first = self._first or self._last
        return {
            "model": self._ask.model,
            "created_at": rfc3339(self._deps.clock()),
            **shape_message(message, generate=self._ask.generate),
        }

    def _final(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._said(message), "done": True, **self._translation.counts(), **self._durations()}

    def _durations(self) -> dict[str, int]:
        """Build the durations: waiting for the engine, its first text, its text (of a stream only)."""
        found = {"total_duration": nanoseconds(self._deps.monotonic() - self._begun)}
        row = self._row.request if self._row is not None else None
        if row is not None and row.granted_at is not None:
            found["load_duration"] = nanoseconds(row.granted_at - row.started_at)
        if row is not None and row.ttft_s is not None:
            found["prompt_eval_duration"] = nanoseconds(row.ttft_s)
        if self._framed and self._first is not None:
            found["eval_duration"] = nanoseconds(self._last - self._first)
        return found


WORDS = frozenset({"embed", "embeddings"})
PATH = "/v1/embeddings"


async def relay_embedding(deps: Deps, exchange: Exchange, body: Mapping[str, Any], name: str, *, older: bool) -> None:
    """Answer one request whose model is `name` here. `older`: in the shape of /api/embeddings."""
    asked = problems.encode_json({"model": name, **parse_embed_request(body, older=older)})
    begun, answered = deps.monotonic(), InnerChannel(asked, exchange.channel)
    await passthrough.relay_request(deps, Exchange(_head(exchange.head, PATH), answered, exchange.key, collected=True))
    if answered.status:  # else the client has left
        took = nanoseconds(deps.monotonic() - begun)
        status, answer = _client_answer(answered, str(body.get("model")), took, older=older)
        await exchange.answer(status, problems.encode_json(answer), [*HEADERS, *_kept_headers(answered.headers)])


def _kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [pair for pair in headers if pair[0] in (b"retry-after", b"x-should-retry")]


def parse_embed_request(body: Mapping[str, Any], *, older: bool) -> dict[str, Any]:
    """Translate the request into OpenAI's format, without the model. Raises AdmissionError: no text to embed."""
    key, allowed = ("prompt", "a text") if older else ("input", "a text, or a list of texts")
    texts = body.get(key)
    each = texts if isinstance(texts, list) and not older else [texts]
    if not each or not all(isinstance(text, str) for text in each):
        raise AdmissionError(f"{key} must be {allowed}.", code="invalid_request")
    request = {"input": texts, "encoding_format": "float"}
    size = body.get("dimensions")
    if size and isinstance(size, int):
        request["dimensions"] = size
    return request


def _client_answer(answered: InnerChannel, model: str, took: int, *, older: bool) -> tuple[int, dict[str, Any]]:
    status, raw = answered.status, bytes(answered.answer)
    if status >= 400:
        return status, {"error": engine_error_text(raw)}
    try:
        reply = json.loads(raw)
        vectors = [item["embedding"] for item in sorted(reply["data"], key=lambda item: item["index"])]
        counted = (reply.get("usage") or {}).get("prompt_tokens")
    except _UNREADABLE:
        return 502, {"error": "The engine's answer has no embeddings in it."}
    if older:
        return status, {"embedding": vectors[0] if vectors else []}
    counts = {} if counted is None else {"prompt_eval_count": counted}
    return status, {"model": model, "embeddings": vectors, "total_duration": took, **counts}


VERSION = "0.13.4"
"""Version of Ollama's API. Clients test it: Codex wants 0.13.4 at least, VS Code 0.6.4."""


async def serve_ollama(deps: Deps, exchange: Exchange) -> None:
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
        await _tell(exchange, _show(deps, exchange, body))
        return
    if word == "pull":
        await _pull(deps, exchange, ollama_wire.model_of(body))
        return
    unloads = ollama_wire.is_unloading(body) and await _may_unload(exchange)
    if word in WORDS:
        await relay_embedding(deps, exchange, body, ollama_wire.model_of(body), older=word == "embeddings")
        await _unload_after(deps, exchange, ollama_wire.model_of(body), unloads)
        return
    ask = ollama_wire.parse_ollama_request(body, generate=word == "generate")
    if ask.empty:
        await _load(deps, exchange, ask)
    else:
        await OllamaChat(deps, exchange, ask).relay()
        await _unload_after(deps, exchange, ask.model, unloads)


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
    wanted = wanted_name(deps, exchange, name)
    profile = _profile(deps, wanted)
    inventory = await deps.inventory(deps.bus.snapshot.profiles) if deps.inventory else Inventory()
    stock = inventory.stock.get(profile, Stock())
    for what, item in (("image is", stock.image), ("weights are", stock.weights)):
        if item is not None and not item.here:
            raise AdmissionError(
                f"The {what} not on this box.",
                code="not_here",
                status=404,
                hint=f"Run `sparkdash pull {profile}` there.",
            )
    await _tell(exchange, {"status": "success"})


async def _may_unload(exchange: Exchange) -> bool:
    try:
        await refuse_unloading(exchange)
    except AdmissionError:
        return False
    return True


async def _unload_after(deps: Deps, exchange: Exchange, model: str, unloads: bool) -> None:
    """Unload the model of an answered request with `keep_alive` 0, where nobody else uses it."""
    if not unloads:
        return
    with suppress(SparkdashError):
        await stop_unused(deps, _profile(deps, wanted_name(deps, exchange, model)))


def _profile(deps: Deps, wanted: str) -> str:
    return _active(deps.bus.snapshot) if wanted == AUTO else deps.catalog().find(wanted).name


async def _load(deps: Deps, exchange: Exchange, ask: OllamaRequest) -> None:
    deps.exclusive.admit(exchange.head.token)
    wanted = wanted_name(deps, exchange, ask.model)
    if ask.unload:
        await unload_model(deps, exchange, _profile(deps, wanted))
    else:
        async with deps.supervisor.lease(wanted, request_id=deps.new_id(), on_wait=lambda _place: None):
            pass
    said = {
        "model": ask.model,
        "created_at": rfc3339(deps.clock()),
        **shape_message({"content": ""}, generate=ask.generate),
    }
    await _tell(exchange, said | {"done_reason": "unload" if ask.unload else "load", "done": True})


# --- facts about models ------------------------------------------------------------------------------------------


def _tags(deps: Deps, snapshot: Snapshot) -> dict[str, Any]:
    found = models.runnable(snapshot)
    return {"models": [_listed(deps, profile, name) for profile in found for name in models.model_names(profile)]}


def _ps(deps: Deps, snapshot: Snapshot) -> dict[str, Any]:
    """List the loaded models. Without `idle_ttl_s` a model stays until year NEVER, as Ollama's `keep_alive` -1."""
    found = [(each, models.engine_of(snapshot, each.name)) for each in models.runnable(snapshot)]
    return {
        "models": [
            _listed(deps, each, each.name)
            | {"expires_at": _expires_at(deps, engine), "size_vram": _size(deps, each.name)}
            | ({} if each.context is None else {"context_length": each.context})
            for each, engine in found
            if engine is not None and engine.state in (EngineState.READY, EngineState.DRAINING)
        ]
    }


NEVER = rfc3339(datetime(2300, 1, 1, tzinfo=UTC).timestamp())


def _expires_at(deps: Deps, engine: Engine) -> str:
    """Return when the engine ends if nobody uses it."""
    ttl_s = deps.settings.policy_of(engine.profile).idle_ttl_s
    used_at = max([*engine.asked_at.values(), engine.ready_at or 0.0])
    return NEVER if ttl_s is None else rfc3339((deps.clock() if engine.in_flight else used_at) + ttl_s)


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
        "size": _size(deps, profile.name),
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


def _size(deps: Deps, name: str) -> int:
    weights = _weights(deps, name)
    return weights.bytes.total if weights is not None else 0


def _weights(deps: Deps, name: str) -> WeightFacts | None:
    profile = deps.catalog().profiles.get(name)
    return deps.supervisor.target(profile) if profile is not None else None


def _show(deps: Deps, exchange: Exchange, body: Mapping[str, Any]) -> dict[str, Any]:
    word, snapshot = ollama_wire.model_of(body), deps.bus.snapshot
    found = _profile(deps, wanted_name(deps, exchange, word))
    profile = snapshot.profile(found)
    if profile is None or profile.cannot_run is not None:
        raise AdmissionError(f"Profile {found} cannot run.", code="model_not_found", status=404)
    weights, whole = _weights(deps, found), deps.catalog().find(found)
    return {
        "modelfile": f"# {profile.about}" if profile.about else "",
        "parameters": "",
        "template": "",
        "details": _details(profile.name, weights),
        "model_info": _model_info(word, profile, weights),
        "capabilities": ["completion", *_abilities(whole), *(("vision",) if profile.sees else ())],
        "modified_at": rfc3339(snapshot.daemon.started_at),
    }


def _abilities(profile: Profile) -> Iterator[str]:
    told = profile.can
    if adapter_of(profile).takes_tools(profile) if told is None else Ability.TOOLS in told:
        yield "tools"
    if argv.lookup(profile.args, "reasoning-parser") if told is None else Ability.REASONING in told:
        yield "thinking"


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


def _active(snapshot: Snapshot) -> str:
    if snapshot.active is None:
        raise AdmissionError("No model is loaded.", code="model_not_found", status=404)
    return snapshot.active.profile


_OWNERS = frozenset({"push", "create", "copy", "delete"})
_READS: dict[str, Callable[[Deps, Snapshot], dict[str, Any]]] = {
    "version": lambda _deps, _snapshot: {"version": VERSION},
    "tags": _tags,
    "ps": _ps,
}
