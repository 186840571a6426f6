"""Requests of /v1/messages and /v1/responses for an engine that speaks chat completions alone."""

from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, BadAnswerError
from sparkdash.gateway.apis.responses import ResponseFiles
from sparkdash.gateway.protocol.route import Dialect, find_route
from sparkdash.gateway.translate.requests import ChatRequest, as_chat
from sparkdash.gateway.translate.response import answer_writer, needs_translation

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
FUNCTION = {"type": "function", "name": "w", "parameters": {"type": "object"}, "strict": True}
IN_CHAT = {"type": "function", "function": {"name": "w", "parameters": {"type": "object"}, "strict": True}}
SCHEMA = {"type": "object", "properties": {}}
URL = "data:image/png;base64,AA=="
PICTURE = {"type": "image_url", "image_url": {"url": URL}}


def messages(*turns: Any, **more: Any) -> ChatRequest:
    return as_chat(MESSAGES, {"model": "m", "max_tokens": 5, "messages": list(turns), **more})


def responses(*items: Any, **more: Any) -> ChatRequest:
    return as_chat(RESPONSES, {"model": "m", "input": list(items) or "hi", **more})


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def called(*ids: str) -> list[dict[str, Any]]:
    return [{"id": one, "type": "function", "function": {"name": "w", "arguments": "{}"}} for one in ids]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (responses(parallel_tool_calls=False), {"parallel_tool_calls": False}),
        (responses(tools=[FUNCTION], tool_choice={"type": "function", "name": "w"}),
         {"tools": [IN_CHAT], "tool_choice": {"type": "function", "function": {"name": "w"}}}),
        (responses(top_logprobs=3), {"logprobs": True, "top_logprobs": 3}),
        (responses(include=["message.output_text.logprobs"]), {"logprobs": True, "top_logprobs": 0}),
        (responses(reasoning={"effort": "high", "summary": "auto"}), {"reasoning_effort": "high"}),
        (responses(text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}),
         {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}),
        (responses(max_output_tokens=7, stop=["x"], min_p=0.1), {"max_tokens": 7, "stop": ["x"], "min_p": 0.1}),
        (messages(user("q"), stop_sequences=["S"], top_k=7), {"stop": ["S"], "top_k": 7}),
        (messages(user("q"), tool_choice={"type": "any", "disable_parallel_tool_use": True}),
         {"tool_choice": "required", "parallel_tool_calls": False}),
        (messages(user("q"), tool_choice={"type": "tool", "name": "w"}),
         {"tool_choice": {"type": "function", "function": {"name": "w"}}}),
        (messages(user("q"), thinking={"type": "disabled"}), {"reasoning_effort": "none"}),
        (messages(user("q"), thinking={"type": "adaptive"}, output_config={"effort": "max"}), {"reasoning_effort": "max"}),
        (messages(user("q"), stream=True), {"stream": True, "stream_options": {"include_usage": True}}),
    ],
)  # fmt: skip
def test_every_setting_arrives(asked: ChatRequest, sent: dict[str, Any]) -> None:
    own = asked.body.keys() - {"model", "messages", "max_tokens"} | sent.keys()
    assert ({key: asked.body.get(key) for key in own}, asked.left_out) == (sent, [])


def test_thoughts_and_parallel_calls_of_earlier_turns_are_one_message() -> None:
    """Results follow, each by its id; pictures in them come as the user's, for want of a better place."""
    thoughts = {"reasoning_content": "T", "reasoning": "T"}
    first = {"role": "assistant", "content": "a", **thoughts, "tool_calls": called("x", "y")}
    results = [{"role": "tool", "tool_call_id": one, "content": text} for one, text in ("x1", "y2")]
    think = {"type": "thinking", "thinking": "T", "signature": "s"}
    uses = [{"type": "tool_use", "id": one, "name": "w", "input": {}} for one in "xy"]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    told = [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "1"}, picture]},
            {"type": "tool_result", "tool_use_id": "y", "content": "2"}, {"type": "text", "text": "go"}]  # fmt: skip
    answer = {"role": "assistant", "content": [think, {"type": "text", "text": "a"}, *uses]}
    made = messages(user("q"), answer, user(*told))
    assert made.body["messages"] == [user("q"), first, *results, user(PICTURE, {"type": "text", "text": "go"})]
    items = [
        user({"type": "input_text", "text": "q"}),
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "T"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        *({"type": "function_call", "call_id": one, "name": "w", "arguments": "{}"} for one in "xy"),
        {"type": "function_call_output", "call_id": "x",
         "output": [{"type": "input_text", "text": "1"}, {"type": "input_image", "image_url": URL}]},
        {"type": "function_call_output", "call_id": "y", "output": "2"},
    ]  # fmt: skip
    made = responses(*items, instructions="I")
    assert made.body["messages"] == [
        {"role": "system", "content": "I"}, user("q"), first, *results, user(PICTURE)
    ]  # fmt: skip


def test_tools_of_a_namespace_keep_their_names() -> None:
    """A tool whose input is a text has no place in a chat, and is named."""
    custom = {"type": "custom", "name": "apply_patch", "description": "d"}
    made = responses(tools=[custom, {"type": "namespace", "name": "agents", "tools": [FUNCTION]}])
    assert [tool["function"]["name"] for tool in made.body["tools"]] == ["agents__w"]
    assert (made.left_out, made.namespaces) == (["tool custom"], {"agents__w": ("agents", "w")})


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (responses(tools=[{"type": "web_search"}]), ["tool web_search"]),
        (responses(user("q"), {"type": "web_search_call", "id": "x"}), ["input web_search_call"]),
        (responses(background=True, truncation="auto", text={"verbosity": "low"}),
         ["truncation", "text.verbosity", "background"]),
        (responses({"type": "reasoning", "summary": [], "encrypted_content": "x"}), ["encrypted reasoning"]),
        (messages(user("q"), thinking={"type": "enabled", "budget_tokens": 1024}), ["thinking.budget_tokens"]),
        (messages(user("q"), mcp_servers=[{"name": "x"}]), ["mcp_servers"]),
        (messages(user({"type": "redacted_thinking", "data": "x"})), ["content redacted_thinking"]),
    ],
)  # fmt: skip
def test_what_no_chat_carries_is_named(made: ChatRequest, named: list[str]) -> None:
    assert made.left_out == named


@pytest.mark.parametrize(("path", "body", "code"), [
    (MESSAGES, {"messages": []}, "invalid_request"),
    (MESSAGES, {"max_tokens": 5, "messages": [3]}, "invalid_request"), (RESPONSES, {}, "invalid_request"),
    (RESPONSES, {"input": "hi", "previous_response_id": "resp_1"}, "previous_response_not_found"),
    (RESPONSES, {"input": [user({"type": "input_file", "file_id": "x"})]}, "not_translatable"),
])  # fmt: skip
def test_a_question_that_would_be_another_one_is_refused(path: str, body: dict[str, Any], code: str) -> None:
    with pytest.raises(AdmissionError) as caught:
        as_chat(path, body)
    assert caught.value.code == code


@pytest.mark.parametrize(("kind", "version", "given", "path", "expected"), [
    ("vllm", "0.11.0", None, "/v1/messages", True), ("vllm", "0.11.1", None, "/v1/messages", False),
    ("vllm", None, None, "/v1/messages", None), ("vllm", "0.9.2", None, "/v1/responses", True),
    ("vllm", "0.9.2", None, "/v1/chat/completions", False), ("vllm", "0.9.2", None, "/v1/completions", False),
    ("sglang", "0.5.8", None, "/v1/messages", True), ("trtllm", "1.2.0", None, "/v1/messages", True),
    ("trtllm", "1.2.0", ("chat", "messages"), "/v1/messages", False), ("openai", None, None, "/v1/responses", None),
    ("openai", None, ("chat",), "/v1/responses", True), ({"kind": "ollama"}, None, None, "/v1/messages", None),
    ({"kind": "nim"}, None, None, "/v1/messages", True),
    ({"kind": "ollama", "routes": ["chat"]}, None, None, "/v1/messages", True),
    ({"port": 1, "routes": ["chat", "messages"]}, None, None, "/v1/messages", False),
])  # fmt: skip
def test_what_an_engine_is_known_to_lack(
    kind: Any, version: str | None, given: Any, path: str, expected: bool | None
) -> None:
    """A description is of one version of a server: Ollama has messages since 0.14. The owner's word counts."""
    engine = {"engine": kind} if isinstance(kind, str) else {"engine": "generic", "server": kind}
    profile = Profile.model_validate({"name": "p", "protocols": given, **engine})
    route = find_route(path)
    assert route is not None
    assert needs_translation(profile, version, route) is expected


def test_files_of_responses_are_found_by_their_owner_and_the_oldest_go_first(tmp_path: Path) -> None:
    files = ResponseFiles(tmp_path / "responses", 1)
    for number in range(3):
        files.write("alice", {"response": {"id": f"resp_{number}"}, "input": ["x" * 400_000]})
    found = [files.read(owner, f"resp_{number}") is not None for owner in ("alice", "bob") for number in range(3)]
    assert found == [False, True, True, False, False, False]
    files = ResponseFiles(tmp_path / "responses", 1)  # a later daemon
    files.write("alice", {"response": {"id": "resp_3"}, "input": ["x" * 400_000]})
    assert [files.read("alice", f"resp_{number}") is not None for number in range(4)] == [False, False, True, True]


def test_no_message_has_bytes_that_are_no_text() -> None:
    answer = answer_writer(Dialect.MESSAGES, {}, ChatRequest())
    with pytest.raises(BadAnswerError, match="bytes that are no text"):
        answer.whole(b"\x1f\x8b\x08\x00rubbish")
