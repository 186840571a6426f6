"""Rerank requests for Text Embeddings Inference, which has its own words for them, and its answers in the usual form.

Owns: both forms. Rule: a request that already says `texts` is left alone, and so is its answer.

Pure.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")
_OWN_KEYS = ("raw_scores", "truncate", "truncation_direction")
"""Keys of the server that a request may have too."""
ANSWER_LIMIT = 16 * 1024**2
"""Bytes; a longer answer passes as it is."""


class Ranking(NamedTuple):
    """Facts of a request that its answer needs. `most`: number of results asked for; None means all."""

    model: str
    most: int | None
    with_documents: bool


def as_texts(body: bytes, model: str) -> tuple[bytes, Ranking | None]:
    """Rewrite a request with `documents`; return it with what its answer needs, None where nothing is changed.

    Raises:
        ValueError: the body is no JSON.
    """
    asked: Any = json.loads(body)
    documents = asked.get("documents") if isinstance(asked, dict) else None
    if not isinstance(documents, list) or "texts" in asked:
        return body, None
    texts = [one.get("text") if isinstance(one, dict) else one for one in documents]
    with_documents, most = bool(asked.get("return_documents")), asked.get("top_n")
    sent = {"query": asked.get("query"), "texts": texts, "return_text": with_documents}
    sent |= {key: asked[key] for key in _OWN_KEYS if key in asked}
    ranking = Ranking(model, most if isinstance(most, int) and most >= 0 else None, with_documents)
    return json.dumps(sent, ensure_ascii=False).encode(), ranking


def as_results(body: bytes, ranking: Ranking) -> bytes:
    """Return an answer as `/v1/rerank` has it, best first; another one, such as an error, unchanged."""
    try:
        rows: Any = json.loads(body)
        best = sorted(rows, key=lambda row: -row["score"])[: ranking.most]
        results = [_result(row, with_document=ranking.with_documents) for row in best]
    except (ValueError, TypeError, KeyError):
        return body
    return json.dumps({"model": ranking.model, "results": results}, ensure_ascii=False).encode()


def _result(row: dict[str, Any], *, with_document: bool) -> dict[str, Any]:
    found = {"index": row["index"], "relevance_score": row["score"]}
    return found | {"document": {"text": row["text"]}} if with_document and "text" in row else found


class RankSplice:
    """Holds an answer back until it is whole, and gives it in the usual form."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._held: bytearray | None = bytearray()
        """Answer so far; None once it is too long."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; return nothing, or all of an answer that is too long."""
        if self._held is None:
            return chunk
        self._held += chunk
        if len(self._held) <= ANSWER_LIMIT:
            return b""
        whole, self._held = bytes(self._held), None
        return whole

    def end(self) -> bytes:
        """Return the answer."""
        return b"" if self._held is None else as_results(bytes(self._held), self._ranking)
