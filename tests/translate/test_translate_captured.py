"""Captured requests of other protocols as chats: recorded requests of real clients, translated."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sparkdash import paths
from sparkdash.bench.plan import suites
from sparkdash.cli.main import app
from sparkdash.gateway.translate.requests import as_chat

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "client-requests.json").read_text("utf-8")
)
FOREIGN = [
    one for one in RECORDED if one["path"] in ("/v1/messages", "/v1/responses") and isinstance(one["body"], dict)
]


def test_each_recorded_request_becomes_the_chat_that_an_engine_would_get() -> None:
    """Claude Code, Codex and eight other clients: with all that they said, and each tool or its name."""
    for one in FOREIGN:
        chat = as_chat(one["path"], one["body"])
        assert all(message["role"] and "content" in message for message in chat.body["messages"])
        said = json.dumps(chat.body["messages"])
        texts = [text for text in _texts(one["body"]) if text]
        assert [text for text in texts if json.dumps(text)[1:-1] not in said.replace("\\\\", "\\")] == [], one["case"]
        given = {tool.get("type") for tool in one["body"].get("tools") or ()} - {None, "function", "namespace"}
        assert {f"tool {kind}" for kind in given} == {word for word in chat.left_out if word.startswith("tool ")}
        assert all(tool["function"]["name"] for tool in chat.body.get("tools", ()))


def _texts(body: dict[str, Any]) -> Iterator[str]:
    """Yield what people and programs said in a request."""
    for turn in body.get("messages") or body.get("input") or ():
        content = turn.get("content") if isinstance(turn, dict) else None
        for block in content if isinstance(content, list) else ():
            yield block.get("text") or block.get("thinking") or ""


def test_a_suite_has_what_claude_code_and_codex_asked() -> None:
    clients = {"claude-code", "codex"}
    lines = [
        json.dumps({"method": "POST", "path": one["path"], "body": one["body"]})
        for one in FOREIGN
        if one["client"] in clients
    ]
    (paths.state_dir() / "captured.jsonl").write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(app, ["bench", "suites", "--captured", "mine"])
    assert (done.exit_code, f"{len(lines)} chats (0 other requests" in done.output) == (0, True), done.output
    chats = suites.load_suite("mine").chats
    assert all(
        set(chat) <= {"messages", "tools", "tool_choice", "parallel_tool_calls", "response_format"} for chat in chats
    )
    assert sum("tools" in chat for chat in chats) >= 4
