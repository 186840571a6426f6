"""Requests of clients are kept when the owner says so, and secrets never are."""

import asyncio
import json
import stat
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chats import DONE, counts, delta
from logs import capture_logs
from scripted import answering, streaming

from sparkdash.domain.history import PastRequests
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import SparkdashError
from sparkdash.gateway.http import capture
from sparkdash.gateway.http.capture import Capture, find_captured, without_secrets
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.route import Dialect

KEY = "sk-proj-0123456789abcdefghij"


class HeardCapture(Capture):
    """Says when it has looked at an answer, which is after the client has it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.done = threading.Event()

    def keep_answer(self, exchange: Exchange, dialect: Dialect, at: float) -> None:
        super().keep_answer(exchange, dialect, at)
        self.done.set()


class Past:
    """The recorded past: nothing but requests by id."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}

    async def requests(self, selection: Any) -> PastRequests:
        return PastRequests(requests=tuple(row for row in self.rows.values() if row.id == selection.id))


@pytest.fixture
def kept(house: Any, tmp_path: Path) -> Capture:
    """The gateway's capture; what is captured is found by its id."""
    house.past, house.capture = Past(), HeardCapture(tmp_path)
    house.rebuild(
        capture=house.capture, captured=partial(find_captured, tmp_path), history=house.past,
        record=lambda row: house.past.rows.__setitem__(row.id, row),
    )  # fmt: skip
    return house.capture  # type: ignore[no-any-return]


def entries(kept: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.path.read_text().splitlines()]


async def test_a_request_is_kept_without_its_secrets(house: Any, kept: Capture) -> None:
    """Enough to send it again; the file is the owner's alone."""
    body = {"model": "alpha", "messages": [{"content": f"my key is {KEY}"}], "api_key": "hunter2", "x": {"n": 1}}
    secrets = {"authorization": f"Bearer {KEY}", "x-api-key": "hunter2", "cookie": "hunter2"}
    headers = secrets | {"user-agent": "opencode/1"}
    await house.client.post("/v1/chat/completions?beta=true&key=hunter2", json=body, headers=headers)
    (entry,) = entries(kept)
    assert (entry["method"], entry["path"]) == ("POST", "/v1/chat/completions")
    assert entry["headers"]["user-agent"] == "opencode/1"
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
    monkeypatch.setattr(capture, "BODY_LIMIT", 50)
    for body in (b'{"model":"alpha","pad":"' + b"x" * 50 + b'"}', b"\xff\xfe", b"{ not json"):
        await house.client.post("/v1/chat/completions", content=body)
    await house.client.get("/v1/files")
    found = [(entry["body_bytes"], entry["body"]) for entry in entries(kept)]
    assert found == [(76, None), (2, None), (10, "{ not json")]


async def test_the_file_does_not_grow_for_ever(house: Any, kept: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "FILE_LIMIT", 600)
    for _ in range(6):
        await house.chat()
    older = kept.path.with_name("captured.jsonl.1")
    assert max(kept.path.stat().st_size, older.stat().st_size) <= 600
    assert entries(kept)


async def test_a_file_that_cannot_be_written_fails_nobody(house: Any, kept: Capture) -> None:
    kept.path.mkdir(parents=True)
    assert (await house.chat()).status_code == 200


@pytest.mark.parametrize("text", [
    f"Bearer {KEY}", '"password": "hunter2\\" hunter2"', '{"arguments": "{\\"api_key\\": \\"hunter2\\"}"}',
    '"OPENAI_API_KEY":"hunter2"', "hf_hunter2hunter2hunter2", "ghp_hunter2hunter2hunter2",
    "github_pat_hunter2hunter2hunter2", "AIzahunter2hunter2hunter2",
    json.dumps(f"my key:\n{KEY}\tand ghp_hunter2hunter2hunter2"), json.dumps("\x01Bearer hunter2hunter2"),
])  # fmt: skip
def test_what_looks_like_a_secret(text: str) -> None:
    """The text around it stays JSON."""
    told = without_secrets(text)
    assert "[redacted]" in told
    assert "hunter2" not in told
    assert KEY not in told
    if text.startswith("{"):
        assert json.loads(json.loads(told)["arguments"]) == {"api_key": "[redacted]"}


def test_what_does_not_is_left_alone() -> None:
    text = 'the api key is in "key" of config; max_tokens: 5, "tokens": "many", secretary = 1'
    assert without_secrets(text) == text


SECRET_WORDS = "the moon over Trieste"


def chat(*words: str, thought: str = "") -> bytes:
    """A streamed chat that says these words, with its counts."""
    said = [*([{"reasoning": thought}] if thought else []), *({"content": word} for word in words)]
    return b"".join([*map(delta, said), delta({}, "stop"), counts(9, len(said)), DONE])


def answers(house: Any, body: bytes, *, stream: bool = True) -> None:
    house.engine.script = streaming(body) if stream else answering(body)


async def capture_one(house: Any, answer: bytes, **more: Any) -> str:
    """Have a client ask for alpha, and return the id of its request."""
    answers(house, answer, stream=more.get("stream", True))
    body = {"model": "alpha", "stream": True, "messages": [{"role": "user", "content": SECRET_WORDS}], **more}
    return await captured(house, "/v1/chat/completions", body)


async def captured(house: Any, path: str, body: dict[str, Any]) -> str:
    """Post a client's request, and return its id once its answer was looked at."""
    house.capture.done.clear()
    await house.client.post(path, json=body, headers={"user-agent": "codex_cli_rs/1"})
    assert await asyncio.to_thread(house.capture.done.wait, 30)
    return str(next(reversed(house.past.rows)))


async def replay(house: Any, request: str, on: str = "beta/fast", *, begin: bool = True) -> Any:
    return await house.client.post("/api/replay", json={"request": request, "on": on, "begin": begin})


async def test_a_replay_tells_both_answers_figures_and_where_they_differ(house: Any, kept: Capture) -> None:
    """The engine gets the captured body under the other profile's name; the caller gets figures alone."""
    first = await capture_one(house, chat("Hello", " world", thought="hm"))
    answers(house, chat("Hello", " there!", thought="hm"))
    answered = await replay(house, first)
    told = answered.json()
    assert told["match"] == {"identical": False, "before": 14, "after": 15, "differs_at": 10}
    original = told["original"]
    assert (original["id"], original["profile"], original["client"]) == (first, "alpha", "codex")
    assert (told["answer"]["profile"], told["answer"]["client"]) == ("beta/fast", "sparkdash-replay")
    assert told["answer"]["completion_tokens"] == 3
    assert (told["profile"], told["plan"]["profile"], told["stream"]) == ("beta/fast", "beta/fast", True)
    sent = json.loads(house.engine.seen[-1].body)
    assert (sent["model"], sent["messages"][0]["content"]) == ("beta/fast", SECRET_WORDS)
    assert SECRET_WORDS not in answered.text
    assert "Hello" not in answered.text


async def test_equal_answers_are_identical_and_a_replay_is_not_captured(house: Any, kept: Capture) -> None:
    """Otherwise replays would become prompts of a suite."""
    first = await capture_one(house, chat("same"))
    assert (await replay(house, first)).json()["match"] == {
        "identical": True, "before": 4, "after": 4, "differs_at": None,
    }  # fmt: skip
    assert len(entries(kept)) == len(kept.path.with_name("captured-answers.jsonl").read_text().splitlines()) == 1


async def test_a_plan_sends_nothing(house: Any, kept: Capture) -> None:
    first = await capture_one(house, chat("one"))
    told = (await replay(house, first, begin=False)).json()
    assert (told["answer"], told["match"], told["plan"]["fits"]) == (None, None, True)
    assert len(house.engine.seen) == 1


async def test_a_request_that_was_not_captured_says_how_to_capture(house: Any, kept: Capture) -> None:
    """While the capture is off the hint names the setting; while it is on, the request is too old."""
    answered = await replay(house, "abc")
    assert (answered.status_code, answered.json()["error"]["code"]) == (404, "not_captured")
    assert "came before" in answered.json()["error"]["message"]
    house.rebuild(capture=None)
    assert "`capture = true` in config.toml" in (await replay(house, "abc")).json()["error"]["message"]


async def test_a_captured_request_can_be_read_with_its_answer(house: Any, kept: Capture) -> None:
    first = await capture_one(house, chat("Hello"))
    told = (await house.client.get(f"/api/requests/{first}/text")).json()
    assert (told["body"]["messages"][0]["content"], told["answer"]) == (SECRET_WORDS, "Hello")
    missing = await house.client.get("/api/requests/abc/text")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_captured")


async def test_a_request_captured_earlier_is_replayed_while_the_capture_is_off(house: Any, kept: Capture) -> None:
    first = await capture_one(house, chat("one"))
    house.rebuild(capture=None)
    assert (await replay(house, first)).json()["match"]["identical"] is True


async def test_what_cannot_be_replayed_is_refused(house: Any, kept: Capture) -> None:
    with capture_logs() as lines:
        embedded = await captured(house, "/v1/embeddings", {"model": "alpha", "input": SECRET_WORDS})
        assert (await replay(house, embedded)).json()["error"]["code"] == "not_replayable"
        long = await capture_one(house, chat("one"), pad="x" * 2**20)
        answered = await replay(house, long)
        assert (answered.status_code, answered.json()["error"]["code"]) == (404, "body_not_kept")
        house.catalog.profiles["cloud"] = Profile(name="cloud", engine=EngineKind.REMOTE, url="https://cloud.example")
        first = await capture_one(house, chat("one"))
        assert (await replay(house, first, "cloud")).json()["error"]["code"] == "remote_profile"
    assert SECRET_WORDS not in str(lines)


async def test_an_engine_that_fails_is_told_in_the_row(house: Any, kept: Capture) -> None:
    first = await capture_one(house, chat("one"))
    house.supervisor.error = SparkdashError("It does not fit.", code="does_not_fit")
    told = (await replay(house, first)).json()
    assert (told["answer"]["state"], told["answer"]["error"], told["match"]) == ("failed", "does_not_fit", None)


async def test_secrets_that_were_left_out_are_told(house: Any, kept: Capture) -> None:
    """The replay is then of another text than the request."""
    first = await capture_one(house, chat("one"), api_key="hunter2")
    assert (await replay(house, first, begin=False)).json()["redacted"] is True


async def test_a_whole_answer_is_compared_too(house: Any, kept: Capture) -> None:
    call = {"function": {"name": "look", "arguments": "{}"}}
    answer = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    first = await capture_one(house, json.dumps(answer).encode(), stream=False)
    told = (await replay(house, first)).json()
    assert (told["stream"], told["match"]["identical"], told["match"]["before"]) == (False, True, len("look{}"))


async def test_the_captured_answer_is_the_owners_alone_and_without_secrets(house: Any, kept: Capture) -> None:
    await capture_one(house, chat("the key is sk-proj-0123456789abcdefghij"))
    file = kept.path.with_name("captured-answers.jsonl")
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["text"] == "the key is [redacted]"


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/completions", {"prompt": "hi"}), ("/v1/responses", {"input": "hi"}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}]}),
])  # fmt: skip
async def test_an_answer_is_kept_as_the_same_text_streamed_and_whole(
    house: Any, kept: Capture, tools: Any, path: str, body: dict[str, Any]
) -> None:
    """In each protocol, so that a replay can be compared with it."""
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    async with tools.simulated_engine(house):
        for stream in (True, False):
            kept.done.clear()  # type: ignore[attr-defined]
            answer = await house.client.post(path, json={"model": "alpha", limit: 9, **body, "stream": stream})
            assert answer.status_code == 200, answer.text
            await asyncio.to_thread(kept.done.wait)  # type: ignore[attr-defined]
    lines = kept.path.with_name("captured-answers.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert len(texts) == 2
    assert texts[0] == texts[1]
    assert texts[0].startswith("This is a simulated answer")
