"""POST /v1/embeddings of the simulated engine: unit vectors that depend only on the text."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from sparkdash.sim.engine import prose
from sparkdash.sim.engine.refusals import RefusedError
from sparkdash.sim.engine.tokens import tokenize

SIZE = 256
LARGEST = 8192


def embed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to `body`. Raises RefusedError for unsupported input."""
    texts, size = _texts(body), _dimensions(body)
    plain = body.get("encoding_format") != "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _embedding(text, size, plain=plain)}
        for index, text in enumerate(texts)
    ]
    spent = sum(len(tokenize(text)) for text in texts)
    usage = {"prompt_tokens": spent, "total_tokens": spent}
    return {"object": "list", "model": body["model"], "data": data, "usage": usage}


def _texts(body: Mapping[str, Any]) -> list[str]:
    source = body.get("input")
    given = source if isinstance(source, list) else [source]
    texts = [text for text in given if isinstance(text, str)]
    if not texts or len(texts) < len(given):
        raise RefusedError("input: the simulated engine takes a string or a list of strings", param="input")
    return texts


def _dimensions(body: Mapping[str, Any]) -> int:
    size = body.get("dimensions") or SIZE
    if not isinstance(size, int) or not 0 < size <= LARGEST:
        raise RefusedError(f"dimensions: a number from 1 to {LARGEST}", param="dimensions")
    return size


def _embedding(text: str, size: int, *, plain: bool) -> list[float] | str:
    rng = prose.seeded_random(text)
    raw = [rng.gauss(0.0, 1.0) for _ in range(size)]
    length = sum(value * value for value in raw) ** 0.5
    values = [value / length for value in raw]
    return values if plain else base64.b64encode(struct.pack(f"<{size}f", *values)).decode()
