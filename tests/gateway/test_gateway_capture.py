"""What clients send is kept when the owner says so, and secrets never are."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash.gateway.relay import capture
from sparkdash.gateway.relay.capture import Capture, without_secrets

KEY = "sk-proj-0123456789abcdefghij"


@pytest.fixture
def kept(house: Any, tmp_path: Path) -> Capture:
    made = Capture(tmp_path / "state")
    house.app.__init__(replace(house.app._deps, capture=made))
    return made


def entries(kept: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.path.read_text().splitlines()]


async def test_a_request_is_kept_without_its_secrets(house: Any, kept: Capture) -> None:
    """Enough to send it again; the file is the owner's alone."""
    body = {"model": "alpha", "messages": [{"content": f"my key is {KEY}"}], "api_key": "hunter2", "x": {"n": 1}}
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-api-key": "hunter2",
        "cookie": "hunter2",
        "user-agent": "opencode/1",
    }
    await house.client.post("/v1/chat/completions?beta=true&key=hunter2", json=body, headers=headers)
    (entry,) = entries(kept)
    assert (entry["method"], entry["path"], entry["headers"]["user-agent"]) == (
        "POST",
        "/v1/chat/completions",
        "opencode/1",
    )
    assert entry["query"] == "beta=true&key=[redacted]"
    assert entry["body"]["messages"] == [{"content": "my key is [redacted]"}]
    assert (entry["body"]["api_key"], entry["body"]["x"]) == ("[redacted]", {"n": 1})
    text = kept.path.read_text()
    assert KEY not in text
    assert "hunter2" not in text
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert json.loads(house.engine.seen[0].body) == body  # the engine got what the client wrote


async def test_its_own_requests_are_no_clients(house: Any, kept: Capture) -> None:
    """A suite of captured prompts must not be made of the last measurement's."""
    for agent in ("sparkdash-bench/1", "llm/1", "sparkdash-demo/opencode"):
        await house.client.post("/v1/chat/completions", json={"model": "alpha"}, headers={"user-agent": agent})
    assert [entry["headers"]["user-agent"] for entry in entries(kept)] == ["llm/1"]


async def test_long_and_odd_bodies(house: Any, kept: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only their length, or their text; what has no body is not kept."""
    monkeypatch.setattr(capture, "BODY_LIMIT", 50)
    for body in (b'{"model":"alpha","pad":"' + b"x" * 50 + b'"}', b"\xff\xfe", b"{ not json"):
        await house.client.post("/v1/chat/completions", content=body)
    await house.client.get("/v1/files")
    assert [(entry["body_bytes"], entry["body"]) for entry in entries(kept)] == [
        (76, None),
        (2, None),
        (10, "{ not json"),
    ]


async def test_the_file_does_not_grow_for_ever(house: Any, kept: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is begun anew, and one older is kept."""
    monkeypatch.setattr(capture, "FILE_LIMIT", 600)
    for _ in range(6):
        await house.chat()
    older = kept.path.with_name("captured.jsonl.1")
    assert max(kept.path.stat().st_size, older.stat().st_size) <= 600
    assert entries(kept)


async def test_a_file_that_cannot_be_written_fails_nobody(house: Any, kept: Capture) -> None:
    """The request is served all the same."""
    kept.path.mkdir(parents=True)
    assert (await house.chat()).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        f"Bearer {KEY}",
        '"password": "hunter2\\" hunter2"',
        '{"arguments": "{\\"api_key\\": \\"hunter2\\"}"}',
        '"OPENAI_API_KEY":"hunter2"',
        "hf_hunter2hunter2hunter2",
        "ghp_hunter2hunter2hunter2",
        "github_pat_hunter2hunter2hunter2",
        "AIzahunter2hunter2hunter2",
        json.dumps(f"my key:\n{KEY}\tand ghp_hunter2hunter2hunter2"),
        json.dumps("\x01Bearer hunter2hunter2"),
    ],
)
def test_what_looks_like_a_secret(text: str) -> None:
    """Whatever stands around it stays JSON."""
    told = without_secrets(text)
    assert "[redacted]" in told
    assert "hunter2" not in told
    assert KEY not in told
    if text.startswith("{"):
        assert json.loads(json.loads(told)["arguments"]) == {"api_key": "[redacted]"}


def test_what_does_not_is_left_alone() -> None:
    """Prose and code about keys."""
    text = 'the api key is in "key" of config; max_tokens: 5, "tokens": "many", secretary = 1'
    assert without_secrets(text) == text
