"""Trials: the smallest request that proves that a server's model works, one for each route. Pure."""

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
    route = next((route for route in wanted if route in PROVABLE), None)
    if route is None:
        return None
    path = server.paths.get(route, ROUTE_PATHS[route])
    if route in _ASKED:
        values, fault = _ASKED[route]
        return Trial(route, path, _JSON, json.dumps({"model": model, **values, **server.ready_with}).encode(), fault)
    fault = _judge(lambda answer: None if isinstance(answer, dict) and "text" in answer else "its answer has no `text`")
    return Trial(route, path, f"multipart/form-data; boundary={BOUNDARY}", _recording(model), fault)


def _judge(fault: Callable[[Any], str | None]) -> Callable[[str, bytes], str | None]:
    def judge(_kind: str, body: bytes) -> str | None:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            return f"it answered no JSON but {_short(body)}"
        if isinstance(answer, dict) and answer.get("error"):
            return f"it answered the error {_short(json.dumps(answer['error']).encode())}"
        return fault(answer)

    return judge


def _first(answer: Any, key: str) -> Any:
    rows = answer.get(key) if isinstance(answer, dict) else None
    return rows[0] if isinstance(rows, list) and rows else None


def _judge_first(key: str) -> Callable[[str, bytes], str | None]:
    return _judge(lambda answer: None if _first(answer, key) is not None else f"its answer has no `{key}`")


def _embedding_fault(answer: Any) -> str | None:
    first = _first(answer, "data")
    vector = first.get("embedding") if isinstance(first, dict) else None
    if not isinstance(vector, list | str) or not vector:
        return "its answer holds no embedding"
    numbers = [value for value in vector if isinstance(value, int | float)] if isinstance(vector, list) else []
    return "its embedding is all zeros" if numbers and not any(numbers) else None


def _rerank_fault(answer: Any) -> str | None:
    rows = answer if isinstance(answer, list) else answer.get("results") if isinstance(answer, dict) else None
    scored = [row for row in rows or () if isinstance(row, dict) and {"score", "relevance_score"} & row.keys()]
    return None if len(scored) == 2 else "its answer holds no score for each document"


def _picture_fault(answer: Any) -> str | None:
    first = _first(answer, "data")
    has_one = isinstance(first, dict) and (first.get("b64_json") or first.get("url"))
    return None if has_one else "its answer holds no picture"


def _message_fault(answer: Any) -> str | None:
    has_one = isinstance(answer, dict) and isinstance(answer.get("content"), list)
    return None if has_one else "its answer has no `content`"


def _recording(model: str) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in (("model", model), ("response_format", "json"))
    ]
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="silence.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    )
    return b"".join((*parts, head.encode(), silence(), f"\r\n--{BOUNDARY}--\r\n".encode()))


def silence() -> bytes:
    """Return a WAV file of half a second of silence: mono, 16 bits, 16 kHz."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(_RATE)
        sound.writeframes(bytes(_RATE))
    return file.getvalue()


def _short(body: bytes) -> str:
    text = body[: 4 * _SHOWN].decode("utf-8", "replace")
    return "nothing" if not text else text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _sound_fault(kind: str, body: bytes) -> str | None:
    if not body or kind.partition(";")[0].strip().lower() == _JSON:
        return f"it answered no sound but {_short(body)}"
    return None


_JSON = "application/json"
_SAID = [{"role": "user", "content": TEXT}]
_PETS = ["a cat", "a stone"]
_ASKED: Mapping[ServerRoute, tuple[Mapping[str, Any], Callable[[str, bytes], str | None]]] = MappingProxyType(
    {
        ServerRoute.CHAT: ({"messages": _SAID, "max_tokens": 16, "temperature": 0}, _judge_first("choices")),
        ServerRoute.COMPLETIONS: ({"prompt": TEXT, "max_tokens": 16, "temperature": 0}, _judge_first("choices")),
        ServerRoute.RESPONSES: ({"input": TEXT, "max_output_tokens": 16}, _judge_first("output")),
        ServerRoute.MESSAGES: ({"messages": _SAID, "max_tokens": 16}, _judge(_message_fault)),
        ServerRoute.EMBEDDINGS: ({"input": "one"}, _judge(_embedding_fault)),
        # `texts` is what Text Embeddings Inference calls the documents
        ServerRoute.RERANK: ({"query": "an animal", "documents": _PETS, "texts": _PETS}, _judge(_rerank_fault)),
        ServerRoute.SCORE: ({"text_1": "an animal", "text_2": _PETS}, _judge_first("data")),
        ServerRoute.SPEECH: ({"input": "One.", "voice": "default", "response_format": "wav"}, _sound_fault),
        ServerRoute.IMAGES: ({"prompt": "a grey square", "n": 1, "size": "256x256"}, _judge(_picture_fault)),
    }
)
"""JSON that each route is asked beside `model`, and the judge of its answer."""
PROVABLE = frozenset((*_ASKED, ServerRoute.TRANSCRIPTIONS, ServerRoute.TRANSLATIONS))
