"""Trial: one short real request in a client's own protocol, to prove its route."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import httpx

from sparkdash.client.address import Address
from sparkdash.client.client import speaking_to
from sparkdash.client.connection import error_from_answer
from sparkdash.errors import UpstreamError
from sparkdash.sse import Frames

Protocol = Literal["chat", "responses", "messages", "router"]
PATIENCE = httpx.Timeout(30.0, connect=3.0, read=120.0)
"""The gateway sends something every 5 s while a model loads."""
QUESTION = "Answer with the single word: ready"
MOST_TOKENS = 256
"""Enough for a reasoning model to reach its answer."""
_HELLO = [{"role": "user", "content": QUESTION}]
_LIMITED = {"max_tokens": MOST_TOKENS, "messages": _HELLO}
_REQUESTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "chat": ("/v1/chat/completions", _LIMITED),
    "router": ("/v1/chat/completions", _LIMITED),
    "messages": ("/v1/messages?beta=true", _LIMITED),
    "responses": ("/v1/responses", {"max_output_tokens": MOST_TOKENS, "input": _HELLO, "store": False}),
}


class TrialAnswer(NamedTuple):
    """Result of a trial."""

    path: str
    model: str
    first_s: float
    """Seconds until the first text, a load included; until the end of an answer without text."""
    total_s: float
    text: str
    """Reasoning and content; empty where all tokens were reasoning that the engine does not show."""


def attempt(root: str, key: str | None, protocol: Protocol, model: str) -> TrialAnswer:
    """Send one streamed request over the same port and path as the client. Raises SparkdashError."""
    path, body = _REQUESTS[protocol]
    address, began = Address(root, given=True), time.monotonic()
    headers = _headers(key, protocol)
    first, parts, cut = None, [], False
    transport = httpx.HTTPTransport(verify=root.startswith("https:"))  # of its own: no proxy between a box and itself
    with (
        speaking_to(address),
        httpx.Client(base_url=root, headers=headers, timeout=PATIENCE, transport=transport) as client,
    ):
        if protocol == "router":
            _listed(client.get("/v1/models"), model, address)
        with client.stream("POST", path, json={"model": model, "stream": True, **body}) as reply:
            if reply.is_error:
                raise error_from_answer(reply.status_code, reply.read(), address)
            for event in _events(reply.iter_bytes()):
                cut = cut or _is_cut(event)
                if part := _text(event):
                    first = first or time.monotonic() - began
                    parts.append(part)
    total, text = time.monotonic() - began, "".join(parts)
    if not (cut or text.strip()):
        raise UpstreamError(f"{model} ended its answer to POST {path} without a word.", code="no_text")
    return TrialAnswer(path, model, first or total, total, text)


def what_it_said(trial: TrialAnswer) -> str:
    if not trial.text.strip():
        return f"{trial.model} was still thinking after {MOST_TOKENS} tokens, and its engine does not show thoughts."
    return f"{trial.model} said: {' '.join(trial.text.split())[:60]}"


def _headers(key: str | None, protocol: Protocol) -> dict[str, str]:
    headers = {"User-Agent": "sparkdash-connect/1"}
    if protocol == "messages":
        headers["anthropic-version"] = "2023-06-01"
    return headers | ({"Authorization": f"Bearer {key}"} if key else {})


def _listed(reply: httpx.Response, model: str, address: Address) -> None:
    if reply.is_error:
        raise error_from_answer(reply.status_code, reply.content, address)
    listed = {item["id"] for item in reply.json()["data"] if "status" in item}
    if model not in listed:
        raise UpstreamError(f"GET /v1/models does not list {model}.", code="not_listed")


def _events(chunks: Iterator[bytes]) -> Iterator[Mapping[str, Any]]:
    frames = Frames()
    for chunk in chunks:
        for frame in frames.feed(chunk):
            if frame.data == "[DONE]":
                return
            event = json.loads(frame.data)
            error = event.get("error") or (event.get("response") or {}).get("error")
            if isinstance(error, Mapping):
                code = str(error.get("reason") or error.get("code"))
                raise UpstreamError(str(error.get("message") or error), code=code)
            yield event


def _is_cut(event: Mapping[str, Any]) -> bool:
    """Whether the event ends an answer that reached its limit of tokens."""
    choices, delta = event.get("choices") or [{}], event.get("delta")
    return (
        choices[0].get("finish_reason") == "length"
        or (isinstance(delta, Mapping) and delta.get("stop_reason") == "max_tokens")
        or event.get("type") == "response.incomplete"
    )


def _text(event: Mapping[str, Any]) -> str:
    """Text of an event. Chat: in the choice's delta; messages: in `delta`; responses: `delta` is the text itself."""
    choices = event.get("choices") or [{}]
    delta = event.get("delta") or choices[0].get("delta") or {}
    if isinstance(delta, str):
        return delta
    keys = ("content", "text", "reasoning_content", "reasoning", "thinking")
    return next((delta[key] for key in keys if isinstance(delta.get(key), str) and delta[key]), "")
