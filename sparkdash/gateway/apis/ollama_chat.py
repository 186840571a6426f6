"""OllamaChat: relays one Ollama chat as an OpenAI request, and its answer as Ollama's lines.

Owns: the request that passthrough gets in the client's place, and the answer as lines or as one object.
Must not know leases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sparkdash.gateway.apis import ollama_wire
from sparkdash.gateway.apis.ollama_wire import (
    AnswerSummary,
    OllamaRequest,
    json_line,
    nanoseconds,
    rfc3339,
    shape_message,
)
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.asgi import Message, Scope, replay_body
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay import passthrough
from sparkdash.gateway.relay.request_row import RequestRow
from sparkdash.sse import Lines

HEADERS = [(b"content-type", b"application/json; charset=utf-8")]
_LINES = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
_BAD_CALL = "The model wrote a tool call whose arguments are not JSON."


def redirect_scope(scope: Scope, path: str) -> Scope:
    """Redirect a client's request to another path, with a JSON body."""
    told = (b"content-length", b"content-type")
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in told]
    return {
        **scope,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*headers, (b"content-type", b"application/json")],
    }


class OllamaChat:
    """Relays a single chat: passthrough speaks OpenAI's protocol with it, the client Ollama's."""

    def __init__(self, deps: Deps, exchange: Exchange, ask: OllamaRequest) -> None:
        self._deps = deps
        self._ask = ask
        self._key = exchange.key
        self._scope, self._receive, self._send = exchange.asgi_triple()
        self._row: RequestRow | None = None
        self._heard = AnswerSummary()
        self._begun = deps.monotonic()
        self._first: float | None = None
        self._last = 0.0
        self._status = 200
        self._framed = False
        self._headers: Iterable[tuple[bytes, bytes]] = ()
        self._lines = Lines()
        self._whole = b""
        self._over = False
        """Whether an error or the last line has been sent."""

    async def relay(self, name: str) -> None:
        """Relay the request and its whole answer.

        Raises AdmissionError: the request is nested too deeply to be translated.
        """
        try:
            body = problems.encode_json({"model": name, **self._ask.body})
        except RecursionError:
            raise ollama_wire.too_deep() from None
        scope, receive = redirect_scope(self._scope, self._ask.path), replay_body(body, self._receive)
        inner = Exchange.from_asgi(scope, receive, self._take, self._key, collected=True)
        await passthrough.relay_request(self._deps, inner, on_row=self._keep_row)

    def _keep_row(self, row: RequestRow) -> None:
        self._row = row

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            kinds = [value for name, value in message["headers"] if name == b"content-type"]
            self._framed = any(kind.startswith(b"text/event-stream") for kind in kinds)
            if self._framed:
                await self._send({**message, "headers": _LINES})
            else:
                self._headers = message["headers"]
            return
        more = message.get("more_body", False)
        if self._framed:
            lines = self._translated_lines(message.get("body", b""), last=not more)
            if lines or not more:
                await self._send({"type": "http.response.body", "body": lines, "more_body": more})
            return
        self._whole += message.get("body", b"")
        if not more:
            await self._send_whole()

    async def _send_whole(self) -> None:
        """Send an answer that is no stream, or an error with its status."""
        status, body = self._status, self._translated(self._whole)
        kept = [pair for pair in self._headers if pair[0] in (b"retry-after", b"x-should-retry")]
        length = (b"content-length", b"%d" % len(body))
        await self._send({"type": "http.response.start", "status": status, "headers": [*HEADERS, *kept, length]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _translated(self, raw: bytes) -> bytes:
        try:
            reply = json.loads(raw)
        except ValueError:
            reply = {"error": {"message": raw[:500].decode("utf-8", "replace")}}
        if self._status >= 400 or not isinstance(reply, dict):
            return problems.encode_json({"error": error_text(reply)})
        said = next(self._heard.take(reply), {"content": ""})
        try:
            calls = self._heard.tool_calls()
        except ValueError:
            self._status = 502
            return problems.encode_json({"error": _BAD_CALL})
        return problems.encode_json(self._final(said | ({"tool_calls": calls} if calls else {})))

    def _translated_lines(self, piece: bytes, *, last: bool) -> bytes:
        """Translate a piece of the event stream into Ollama's lines."""
        lines = [*self._lines.feed(piece), *(self._lines.end() if last else ())]
        out = [self._line(one[5:].strip()) for one in lines if one.startswith("data:")]
        if last and not self._over and self._heard.reason:  # some engines omit [DONE]
            out.append(self._end())
        return b"".join(out)

    def _line(self, data: str) -> bytes:
        if self._over:
            return b""
        if data == "[DONE]":
            return self._end()
        try:
            chunk = json.loads(data)
        except ValueError:
            return b""
        if not isinstance(chunk, dict) or "error" in chunk:
            return self._failed(error_text(chunk))
        return b"".join(self._part(message) for message in self._heard.take(chunk))

    def _part(self, message: dict[str, Any]) -> bytes:
        if message["content"] or "thinking" in message:
            self._last = self._deps.monotonic()
            self._first = self._first or self._last
        elif self._heard.reason:
            return b""  # the last chunk has only the finish reason
        return json_line(self._said(message) | {"done": False})

    def _end(self) -> bytes:
        try:
            calls = self._heard.tool_calls()
        except ValueError:
            return self._failed(_BAD_CALL)
        self._over = True
        called = self._said({"content": "", "tool_calls": calls}) | {"done": False}
        return (json_line(called) if calls else b"") + json_line(self._final({"content": ""}))

    def _failed(self, words: str) -> bytes:
        self._over = True
        return json_line({"error": words})

    def _said(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "model": self._ask.model,
            "created_at": rfc3339(self._deps.clock()),
            **shape_message(message, generate=self._ask.generate),
        }

    def _final(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._said(message), "done": True, **self._heard.counts(), **self._durations()}

    def _durations(self) -> dict[str, int]:
        """Build the durations: waiting for the engine, its first text, its text. Only a stream has times of its
        text."""
        found = {"total_duration": nanoseconds(self._deps.monotonic() - self._begun)}
        row = self._row.request if self._row is not None else None
        if row is not None and row.granted_at is not None:
            found["load_duration"] = nanoseconds(row.granted_at - row.started_at)
        if row is not None and row.ttft_s is not None:
            found["prompt_eval_duration"] = nanoseconds(row.ttft_s)
        if self._first is not None:
            found["eval_duration"] = nanoseconds(self._last - self._first)
        return found


def error_text(reply: Any) -> str:
    """Extract the message of an error, whoever wrote it."""
    error = reply.get("error", reply) if isinstance(reply, dict) else reply
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(error)[:500]
