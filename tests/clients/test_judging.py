"""Acts that run.py lets pass, and acts that it does not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.request import Request, RequestState

sys.path.insert(0, str(Path(__file__).parent))
from clients import CLIENTS, Act
from judging import Outcome, cells

LLM = CLIENTS[0]


def row(state: RequestState = RequestState.DONE, **more: Any) -> Request:
    base = {"id": "r", "client": "llm", "profile": "tiny", "route": "/v1/chat/completions", "started_at": 100.0}
    return Request(**base | {"state": state, "completion_tokens": 9, "granted_at": 103.0, "finished_at": 105.0} | more)


def outcome(*rows: Request, **more: Any) -> Outcome:
    said: dict[str, Any] = {"status": 0, "took_s": 1.0, "output": "The tool returned: 7f.", "note": "7f"}
    return Outcome(**said | more, rows=rows)


STREAM, GONE, FAILED = row(stream=True), row(RequestState.GONE, stream=True), row(RequestState.FAILED, error="x")
CUT: dict[str, Any] = {"status": 1, "interrupted_at": 106.0, "freed_s": 0.1}


@pytest.mark.parametrize(
    ("act", "column", "result", "expected"),
    [
        (Act.STREAM, "wait", outcome(STREAM), "3 s"),
        (Act.STREAM, "streaming", outcome(STREAM), "passed"),
        (Act.STREAM, "streaming", outcome(STREAM, row()), "passed, 1 of 2 requests"),
        (Act.STREAM, "streaming", outcome(row()), "failed: not streamed"),
        (Act.STREAM, "wait", outcome(FAILED), "failed: /v1/chat/completions failed x"),
        (Act.STREAM, "wait", outcome(), "failed: no request in the books"),
        (Act.STREAM, "wait", outcome(STREAM, output=" "), "failed: said nothing"),
        (Act.STREAM, "wait", outcome(STREAM, status=None), "failed: status None"),
        (Act.STREAM, "wait", outcome(row(completion_tokens=None)), "failed: /v1/chat/completions done"),
        (Act.WHOLE, "plain", outcome(row()), "passed"),
        (Act.WHOLE, "plain", outcome(STREAM), "failed: streamed"),
        (Act.TOOLS, "tools", outcome(row(), STREAM), "passed"),
        (Act.TOOLS, "tools", outcome(row(), note="8a"), "failed: the model's answer to what the tool returned is missing"),
        (Act.CANCEL, "cancel", outcome(GONE, STREAM, **CUT), "0.10 s"),
        (Act.CANCEL, "cancel", outcome(STREAM, **CUT), "failed: /v1/chat/completions done"),
        (Act.CANCEL, "cancel", outcome(GONE, row(finished_at=107.0), **CUT), "failed: /v1/chat/completions gone, /v1/chat/completions done"),
        (Act.CANCEL, "cancel", outcome(GONE, **CUT | {"status": None}), "failed: did not end after its interrupt"),
        (Act.CANCEL, "cancel", outcome(STREAM), "failed: no stream to interrupt"),
        (Act.CANCEL, "cancel", outcome(GONE, **CUT | {"freed_s": None}), "failed: the engine went on"),
    ],
)  # fmt: skip
def test_a_cell_passes_only_with_what_it_stands_for(act: Act, column: str, result: Outcome, expected: str) -> None:
    found = cells(LLM, {act: result})
    assert found[column] == expected
    assert sum(cell != "-" for cell in found.values()) == (2 if act is Act.STREAM else 1)
