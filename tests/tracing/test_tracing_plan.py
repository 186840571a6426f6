"""Spans as they are planned from the row of an ended request."""

from __future__ import annotations

import pytest
from scraped import ALPHA, NOW, ended, swap

from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import SwapPhase
from sparkdash.tracing import PlannedSpan, plan_spans


def times(span: PlannedSpan) -> list[tuple[str, float, float]]:
    return [(child.name, child.start, child.end) for child in span.children]


def test_a_request_has_its_wait_its_prefill_and_its_decode_one_after_the_other() -> None:
    span = plan_spans(ended(stream=True), provider="vllm", swap=None)
    assert (span.name, span.start, span.end, span.error) == (f"chat {ALPHA}", NOW - 9, NOW - 5, None)
    assert times(span) == [
        ("wait", NOW - 9, NOW - 8), ("prefill", NOW - 8, NOW - 7.5), ("decode", NOW - 7.5, NOW - 5)
    ]  # fmt: skip
    told = span.attributes
    assert told["gen_ai.provider.name"] == "vllm"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (100, 50)
    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    assert "error.type" not in told


def test_the_stages_of_a_swap_are_in_the_wait_and_cut_to_it() -> None:
    """The request came 2 s into the stop, and was granted before the warm-up's own end was told."""
    stages = {SwapPhase.STOP: 3.0, SwapPhase.LOAD: 5.0, SwapPhase.WARM: 9.0}
    loading = swap("1", started_at=NOW - 20, stage_s=stages, ended_at=NOW - 3)
    wait = plan_spans(
        ended(started_at=NOW - 18, granted_at=NOW - 8, finished_at=NOW), provider=None, swap=loading
    ).children[0]
    assert times(wait) == [
        ("swap stop", NOW - 18, NOW - 17), ("swap load", NOW - 17, NOW - 12), ("swap warm", NOW - 12, NOW - 8)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "error", "names"),
    [
        (
            {"state": RequestState.FAILED, "granted_at": None, "ttft_s": None, "error": "queue_full"},
            "queue_full",
            ["wait"],
        ),
        ({"state": RequestState.FAILED, "ttft_s": None, "error": None}, "error", ["wait", "prefill"]),
        ({"state": RequestState.GONE}, None, ["wait", "prefill", "decode"]),
        ({"started_at": NOW - 8, "ttft_s": 99.0}, None, ["prefill", "decode"]),
    ],
    ids=["never granted", "failed in the prefill", "the client left", "times that do not fit"],
)
def test_what_did_not_happen_has_no_span(changes: dict[str, object], error: str | None, names: list[str]) -> None:
    span = plan_spans(ended(**changes), provider=None, swap=None)
    assert span.error == error
    assert [child.name for child in span.children] == names
    assert all(span.start <= child.start <= child.end <= span.end for child in span.children)


def test_an_unknown_figure_is_no_attribute() -> None:
    span = plan_spans(ended(prompt_tokens=None, cached_tokens=None, finish_reason=None), provider=None, swap=None)
    assert None not in span.attributes.values()
    assert "gen_ai.usage.input_tokens" not in span.attributes
