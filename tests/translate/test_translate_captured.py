"""Captured requests of other protocols as chats: recorded requests of real clients, through the real translator."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash import paths
from sparkdash.bench.plan import suites
from sparkdash.cli.main import app
from sparkdash.gateway.translate import translator
from sparkdash.gateway.translate.translator import Translator, chats_of_requests

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "client-requests.json").read_text("utf-8")
)
FOREIGN = [
    one for one in RECORDED if one["path"] in ("/v1/messages", "/v1/responses") and isinstance(one["body"], dict)
]


async def test_each_recorded_request_becomes_the_chat_that_an_engine_would_get() -> None:
    """Claude Code, Codex and eight other clients: with what they said and their tools. A request that continues a stored
    response is refused, and the next one is not taken for it.
    """
    stored = ("/v1/responses", {"input": "go on", "previous_response_id": "resp_1"})
    asked = [(one["path"], one["body"]) for one in FOREIGN]
    chats = await chats_of_requests([stored, *asked])
    assert chats[0] is None
    for one, chat in zip(FOREIGN, chats[1:], strict=True):
        assert chat is not None, one["case"]
        assert all(message["role"] and "content" in message for message in chat["messages"])
        tools = [
            tool for tool in one["body"].get("tools") or () if "input_schema" in tool or tool.get("type") == "function"
        ]
        assert len(chat.get("tools") or ()) >= len(tools)
        assert all(tool["function"]["name"] for tool in chat.get("tools") or ())


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


async def test_the_translator_of_a_daemon_that_runs_keeps_its_socket() -> None:
    place = str(paths.runtime_dir() / "translator.sock")
    with socket.socket(socket.AF_UNIX) as daemons, socket.socket(socket.AF_UNIX) as client:
        daemons.bind(place)
        daemons.listen()
        await chats_of_requests([(FOREIGN[0]["path"], FOREIGN[0]["body"])])
        client.connect(place)  # refused where another translator took its place
        assert client.getpeername() == place


def test_without_the_translator_other_chats_are_taken_and_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Translator, "packages", ("no_such_package",))
    own = {"path": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "hi"}]}}
    other = {"path": "/v1/messages", "body": FOREIGN[0]["body"]}
    (paths.state_dir() / "captured.jsonl").write_text(f"{json.dumps(own)}\n{json.dumps(other)}\n")
    done = CliRunner().invoke(app, ["bench", "suites", "--captured", "mine"])
    assert done.exit_code == 0
    assert "1 request of /v1/messages is left out: the translator is not installed" in done.output
    assert "pip install 'sparkdash[translate]'" in done.output
    assert "1 chats (1 other requests were skipped)" in done.output


async def test_a_client_of_the_stand_in_that_breaks_off_ends_nothing() -> None:
    """The stand-in is a server on loopback: whoever connects and leaves changes nothing."""
    async with translator._Engine().serving() as engine:
        port = int(engine.url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{")
        writer.close()
        await writer.wait_closed()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b'POST / HTTP/1.1\r\nContent-Length: 8\r\n\r\n{"a": 1}')
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert engine.asked == {"a": 1}
        writer.close()
