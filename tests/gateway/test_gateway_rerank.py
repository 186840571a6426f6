"""Rerank requests for a server with words of its own, and its answers in the usual form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkdash.gateway.protocol import splices
from sparkdash.gateway.protocol.splices import Ranking, RankSplice, as_results, as_texts

ROWS = [{"index": 1, "score": 0.2, "text": "a stone"}, {"index": 0, "score": 0.9, "text": "a cat"}]


def rewritten(**asked: Any) -> tuple[Any, Ranking | None]:
    body, ranking = as_texts(json.dumps(asked).encode(), "ranks")
    return json.loads(body), ranking


def test_documents_become_texts_and_the_servers_own_keys_stay() -> None:
    sent, ranking = rewritten(model="m", query="q", documents=["a", {"text": "b"}], top_n=1, truncate=True)
    assert sent == {"query": "q", "texts": ["a", "b"], "return_text": False, "truncate": True}
    assert ranking == Ranking("ranks", 1, False)


@pytest.mark.parametrize("asked", [{"query": "q", "texts": ["a"]}, {"query": "q"}, {"documents": "a"}], ids=str)
def test_a_request_in_the_servers_words_or_without_documents_is_left_alone(asked: dict[str, Any]) -> None:
    assert rewritten(**asked) == (asked, None)


def test_results_are_best_first_as_many_as_asked_for() -> None:
    found = json.loads(as_results(json.dumps(ROWS).encode(), Ranking("m", None, True)))
    assert found["model"] == "m"
    assert [(row["index"], row["relevance_score"]) for row in found["results"]] == [(0, 0.9), (1, 0.2)]
    assert found["results"][0]["document"] == {"text": "a cat"}
    one = json.loads(as_results(json.dumps(ROWS).encode(), Ranking("m", 1, False)))
    assert one["results"] == [{"index": 0, "relevance_score": 0.9}]


@pytest.mark.parametrize("body", [b'{"error": "too long", "error_type": "Validation"}', b"[1]", b"cut", b"null"])
def test_another_answer_is_left_alone(body: bytes) -> None:
    """An error keeps the server's words."""
    assert as_results(body, Ranking("m", None, False)) == body


def test_an_answer_is_held_until_it_is_whole_and_a_long_one_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps(ROWS).encode()
    splice = RankSplice(Ranking("m", 1, False))
    assert splice.feed(whole[:9]) + splice.feed(whole[9:]) == b""
    assert json.loads(splice.end())["results"][0]["index"] == 0
    monkeypatch.setattr(splices, "ANSWER_LIMIT", 20)
    long = RankSplice(Ranking("m", 1, False))
    assert long.feed(whole[:9]) + long.feed(whole[9:40]) + long.feed(whole[40:]) + long.end() == whole
