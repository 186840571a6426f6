"""Trials: the smallest request that proves that a server's model works, one for each route.

Owns: the requests, and what an answer must contain. Must not know how they are sent, or when. Pure.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sparkdash.domain.profile import ServerSpec
from sparkdash.domain.request import ROUTE_PATHS, ServerRoute

TEXT = "Count from one to five."
BOUNDARY = "sparkdash-trial"
_RATE = 16_000
_SILENCE_S = 0.5
_PICTURE = "256x256"
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Trial:
    """A request to a server, and the judge of its answer."""

    route: ServerRoute
    path: str
    content_type: str
    body: bytes
    fault: Callable[[str, bytes], str | None]
    """Takes content type and body of an answer with status 200; returns what is wrong with it, or None."""


def trial_of(server: ServerSpec, model: str) -> Trial | None:
    """Return the trial that proves that this server works; None where its health path alone decides."""
    chosen = server.ready_by
    if chosen == "health":
        return None
    wanted = (chosen,) if isinstance(chosen, ServerRoute) else server.routes
    route = next((route for route in wanted if route in _TRIALS), None)
    if route is None:
        return None
    content_type, body, fault = _TRIALS[route](model)
    if server.ready_with and content_type == _JSON:
        body = json.dumps({**json.loads(body), **server.ready_with}).encode()
    return Trial(route, server.paths.get(route, ROUTE_PATHS[route]), content_type, body, fault)


_JSON = "application/json"
_Made = tuple[str, bytes, Callable[[str, bytes], str | None]]


def _posted(values: Mapping[str, Any], fault: Callable[[Any], str | None]) -> _Made:
    def judge(_kind: str, body: bytes) -> str | None:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            return f"it answered no JSON but {_short(body)}"
        if isinstance(answer, dict) and answer.get("error"):
            return f"it answered the error {_short(json.dumps(answer['error']).encode())}"
        return fault(answer)

    return _JSON, json.dumps(values).encode(), judge


def _chat(model: str) -> _Made:
    said = [{"role": "user", "content": TEXT}]
    values = {"model": model, "messages": said, "max_tokens": 16, "temperature": 0}
    return _posted(values, lambda answer: _missing(_first(answer, "choices"), "choices"))


def _completion(model: str) -> _Made:
    values = {"model": model, "prompt": TEXT, "max_tokens": 16, "temperature": 0}
    return _posted(values, lambda answer: _missing(_first(answer, "choices"), "choices"))


def _response(model: str) -> _Made:
    values = {"model": model, "input": TEXT, "max_output_tokens": 16}
    return _posted(values, lambda answer: _missing(_first(answer, "output"), "output"))


def _message(model: str) -> _Made:
    values = {"model": model, "messages": [{"role": "user", "content": TEXT}], "max_tokens": 16}
    return _posted(values, lambda answer: None if _is_list(answer, "content") else "its answer has no `content`")


def _embedding(model: str) -> _Made:
    return _posted({"model": model, "input": "one"}, _embedding_fault)


def _embedding_fault(answer: Any) -> str | None:
    first = _first(answer, "data")
    vector = first.get("embedding") if isinstance(first, dict) else None
    if not isinstance(vector, list | str) or not vector:
        return "its answer holds no embedding"
    numbers = [value for value in vector if isinstance(value, int | float)] if isinstance(vector, list) else []
    return "its embedding is all zeros" if numbers and not any(numbers) else None


def _rerank(model: str) -> _Made:
    # `texts` is what Text Embeddings Inference calls the documents
    documents = ["a cat", "a stone"]
    values = {"model": model, "query": "an animal", "documents": documents, "texts": documents}
    return _posted(values, _rerank_fault)


def _rerank_fault(answer: Any) -> str | None:
    rows = answer if isinstance(answer, list) else answer.get("results") if isinstance(answer, dict) else None
    scored = [row for row in rows or () if isinstance(row, dict) and {"score", "relevance_score"} & row.keys()]
    return None if len(scored) == 2 else "its answer holds no score for each document"


def _score(model: str) -> _Made:
    values = {"model": model, "text_1": "an animal", "text_2": ["a cat", "a stone"]}
    return _posted(values, lambda answer: _missing(_first(answer, "data"), "data"))


def _speech(model: str) -> _Made:
    values = {"model": model, "input": "One.", "voice": "default", "response_format": "wav"}
    return _JSON, json.dumps(values).encode(), _sound_fault


def _sound_fault(kind: str, body: bytes) -> str | None:
    if not body or kind.partition(";")[0].strip().lower() == _JSON:
        return f"it answered no sound but {_short(body)}"
    return None


def _picture(model: str) -> _Made:
    return _posted({"model": model, "prompt": "a grey square", "n": 1, "size": _PICTURE}, _picture_fault)


def _picture_fault(answer: Any) -> str | None:
    first = _first(answer, "data")
    has_one = isinstance(first, dict) and (first.get("b64_json") or first.get("url"))
    return None if has_one else "its answer holds no picture"


def _transcription(model: str) -> _Made:
    fields = (("model", model), ("response_format", "json"))
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    ]
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="silence.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    )
    body = b"".join((*parts, head.encode(), silence(), f"\r\n--{BOUNDARY}--\r\n".encode()))
    _, _, judge = _posted({}, lambda answer: None if _has(answer, "text") else "its answer has no `text`")
    return f"multipart/form-data; boundary={BOUNDARY}", body, judge


def silence(seconds: float = _SILENCE_S) -> bytes:
    """Return a WAV file of silence: mono, 16 bits, 16 kHz."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(_RATE)
        sound.writeframes(bytes(2 * int(_RATE * seconds)))
    return file.getvalue()


def _first(answer: Any, key: str) -> Any:
    rows = answer.get(key) if isinstance(answer, dict) else None
    return rows[0] if isinstance(rows, list) and rows else None


def _is_list(answer: Any, key: str) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get(key), list)


def _has(answer: Any, key: str) -> bool:
    return isinstance(answer, dict) and key in answer


def _missing(found: Any, key: str) -> str | None:
    return None if found is not None else f"its answer has no `{key}`"


def _short(body: bytes) -> str:
    text = body[: 4 * _SHOWN].decode("utf-8", "replace")
    return "nothing" if not text else text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_TRIALS: Mapping[ServerRoute, Callable[[str], _Made]] = MappingProxyType(
    {
        ServerRoute.CHAT: _chat,
        ServerRoute.COMPLETIONS: _completion,
        ServerRoute.RESPONSES: _response,
        ServerRoute.MESSAGES: _message,
        ServerRoute.EMBEDDINGS: _embedding,
        ServerRoute.RERANK: _rerank,
        ServerRoute.SCORE: _score,
        ServerRoute.TRANSCRIPTIONS: _transcription,
        ServerRoute.TRANSLATIONS: _transcription,
        ServerRoute.SPEECH: _speech,
        ServerRoute.IMAGES: _picture,
    }
)
PROVABLE = frozenset(_TRIALS)
