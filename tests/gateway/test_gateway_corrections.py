"""Requests as clients really send them and engines of each version take them; and a profile's own rules."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, FixName, ModelRef, Profile
from sparkdash.engines.argv import version_of
from sparkdash.engines.registry import adapter
from sparkdash.gateway.protocol.peek import peek_body
from sparkdash.gateway.protocol.prepare import COMPAT_RULES, CompatTarget, RequestPreparer, apply_rules, rules_for
from sparkdash.gateway.protocol.route import Dialect, find_route

DATA = Path(__file__).parent.parent / "data" / "client-requests.json"
DOCS = Path(__file__).parent.parent.parent / "docs" / "requests.md"
RECORDED: list[dict[str, Any]] = json.loads(DATA.read_text())
"""One of each kind of request that 19 real clients were seen to send; long texts are cut."""
ALL = list(FixName)
OLD_VLLM = CompatTarget(adapter(EngineKind.VLLM), (0, 22, 1))
NEW_VLLM = CompatTarget(adapter(EngineKind.VLLM), (0, 33, 0))
HARMONY = CompatTarget(adapter(EngineKind.VLLM), (0, 33, 0), harmony=True)
TARGETS = [
    CompatTarget(adapter(kind), version, harmony)
    for kind in EngineKind
    for version in (None, (0, 1))
    for harmony in (False, True)
]


def recorded(client: str, case: str, path: str) -> dict[str, Any]:
    """The first such request's body."""
    return next(
        one["body"] for one in RECORDED if one["case"] == case and one["client"] == client and one["path"] == path
    )


def fix(body: bytes, dialect: Dialect, target: CompatTarget, off: Collection[FixName] = ()) -> bytes:
    return apply_rules(body, rules_for(dialect, off, target), target)


def through(body: dict[str, Any], path: str, target: CompatTarget, *off: FixName) -> dict[str, Any]:
    route = find_route(path)
    assert route is not None
    made: dict[str, Any] = json.loads(fix(json.dumps(body).encode(), route.dialect, target, off))
    return made


CLAUDE = recorded("claude-code", "claude.plain", "/v1/messages")
CODEX = recorded("codex", "codex.plain", "/v1/responses")
CODEX["tools"] += [{"type": "namespace", "name": "multi_agent_v1", "tools": []}, {"type": "web_search"}]
"""The recording was cut before these two, of which it kept type and name."""


def test_claudes_billing_line_goes_wherever_it_is_sent() -> None:
    """The line differs per session and stands first, so that no prompt would be found in the prefix cache."""
    for target in TARGETS:
        made = through(CLAUDE, "/v1/messages", target)
        assert made["system"] == CLAUDE["system"][1:]
        assert CLAUDE["system"][0]["text"].startswith("x-anthropic-billing-header")


def test_todays_claude_is_taken_by_an_old_vllm() -> None:
    """No system turn, no key of 2026; every text of them is still there."""
    made = through(CLAUDE, "/v1/messages", OLD_VLLM)
    assert not {"context_management", "output_config", "thinking"} & made.keys()
    assert [message["role"] for message in made["messages"]] == ["user"]
    assert made["messages"][0]["content"] == CLAUDE["messages"][0]["content"] + CLAUDE["messages"][1]["content"]


def test_a_new_vllm_gets_what_it_understands() -> None:
    """Only the billing line is gone; an unknown version counts as new."""
    for target in (NEW_VLLM, CompatTarget(adapter(EngineKind.VLLM))):
        assert through(CLAUDE, "/v1/messages", target) == CLAUDE | {"system": CLAUDE["system"][1:]}


def test_codex_is_taken_by_gpt_oss() -> None:
    """vLLM refuses namespaces and web search there: only functions are left."""
    made = through(CODEX, "/v1/responses", HARMONY)
    assert {tool["type"] for tool in CODEX["tools"]} > {"function"}
    assert {tool["type"] for tool in made["tools"]} == {"function"}
    assert {**made, "tools": None} == {**CODEX, "tools": None}
    assert through(CODEX, "/v1/responses", NEW_VLLM) == CODEX
    assert through(CODEX, "/v1/responses", HARMONY, FixName.RESPONSES_TOOL_TYPES) == CODEX


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_recorded_request_is_fixed_once_and_for_all(target: CompatTarget) -> None:
    """A fixed request needs no more and keeps model, stream and turns; with all rules off its bytes stay."""
    for one in RECORDED:
        route = find_route(one["path"])
        if one["body"] is None or route is None:
            continue
        body = json.dumps(one["body"], ensure_ascii=False).encode()
        made = fix(body, route.dialect, target)
        assert fix(made, route.dialect, target) == made
        assert fix(body, route.dialect, target, ALL) is body
        now = json.loads(made)
        assert {key: now.get(key) for key in ("model", "stream")} == {
            k: one["body"].get(k) for k in ("model", "stream")
        }
        assert bool(now.get("messages")) == bool(one["body"].get("messages"))


def test_most_requests_are_left_as_they_are() -> None:
    """On today's vLLM only Claude Code's and those with a wrong key differ by a byte."""
    changed = set()
    for one in RECORDED:
        route = find_route(one["path"])
        if one["body"] is not None and route is not None:
            body = json.dumps(one["body"]).encode()
            if fix(body, route.dialect, NEW_VLLM) is not body:
                changed.add(one["client"])
    assert changed == {"claude-code"}


def test_progress_that_an_agent_sends_back_is_taken_out() -> None:
    """Our lines were no reasoning of the model; its own stay, and so does a user who writes of sparkdash."""
    ours = "[sparkdash] alpha: loading 42%\n"
    messages = [
        {"role": "user", "content": "[sparkdash] is this yours?"},
        {"role": "assistant", "content": "a", "reasoning_content": ours + ours},
        {"role": "assistant", "content": "b", "reasoning": ours + "I think.\nSo [sparkdash]"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": ours, "signature": ""}, {"type": "text"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": ours + "Hm."}]},
    ]
    made = through({"messages": messages}, "/v1/chat/completions", NEW_VLLM)["messages"]
    assert made == [
        messages[0],
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning": "I think.\nSo [sparkdash]"},
        {"role": "assistant", "content": [{"type": "text"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]},
    ]


STRICT = CompatTarget(adapter(EngineKind.LLAMACPP), system_first=True)


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_one_system_message_is_left_for_a_template_that_takes_one() -> None:
    """Instructions at the beginning are joined. Later ones join the user's turn where they stand: the prefix stays."""
    roles = ("developer", "system", "user", "system", "assistant")
    turns = [turn(role, text) for role, text in zip(roles, "abcde", strict=True)]
    more = [turn("developer", "f"), turn("user", [{"type": "text", "text": "g"}]), turn("assistant", "h")]
    chat = "/v1/chat/completions"
    made = through({"messages": turns + more}, chat, STRICT)["messages"]
    folded = [{"type": "text", "text": "f"}, {"type": "text", "text": "g"}]
    wanted = [turn("system", "a\n\nb"), turn("user", "c\n\nd"), turn("assistant", "e"), turn("user", folded), more[2]]
    assert made == wanted
    assert through({"messages": turns}, chat, STRICT)["messages"] == wanted[:3]
    assert through({"messages": turns}, chat, STRICT, FixName.ONE_SYSTEM_MESSAGE)["messages"] == turns


def test_todays_agents_are_taken_by_a_strict_template() -> None:
    """Codex's instructions and its first developer message become one; every text is still there, in its order."""
    first, second, *rest = CODEX["input"]
    assert first["role"] == second["role"] == "developer"
    texts = [block["text"] for item in (first, second) for block in item["content"]]
    made = through(CODEX | {"instructions": "Be brief."}, "/v1/responses", STRICT)
    assert (made["instructions"], made["input"]) == ("\n\n".join(["Be brief.", *texts]), rest)
    later = [*rest, first]
    folded = through({"input": later}, "/v1/responses", STRICT)
    assert folded["input"] == [*rest[:-1], rest[-1] | {"content": rest[-1]["content"] + first["content"]}]
    assert "instructions" not in folded
    claude = through(CLAUDE, "/v1/messages", STRICT)
    assert [message["role"] for message in claude["messages"]] == ["user"]


def test_developers_are_heard_where_templates_would_drop_them() -> None:
    """By SGLang and an older vLLM, whose templates skip a role that they do not know; gpt-oss knows it."""
    for path, key in (("/v1/chat/completions", "messages"), ("/v1/responses", "input")):
        body = {key: [turn("developer", "a"), turn("user", "b")]}
        for target in (CompatTarget(adapter(EngineKind.SGLANG)), OLD_VLLM):
            assert through(body, path, target)[key] == [turn("system", "a"), turn("user", "b")]
        for target in (HARMONY, NEW_VLLM, CompatTarget(adapter(EngineKind.SGLANG), harmony=True)):
            assert through(body, path, target) == body


def test_sealed_reasoning_is_opened_or_left_out() -> None:
    """gpt-oss on vLLM answers 400 to it."""
    sealed = {"type": "reasoning", "encrypted_content": "x", "summary": []}
    items = [sealed, {**sealed, "content": [{"type": "reasoning_text", "text": "t"}]}, {"type": "message"}]
    made = through({"input": items, "include": ["reasoning.encrypted_content"]}, "/v1/responses", HARMONY)
    assert made["input"] == [{"type": "reasoning", "summary": [], "content": items[1]["content"]}, items[2]]


def test_a_limit_by_another_protocols_name_counts() -> None:
    """VS Code sends `max_tokens` to /v1/responses."""
    assert through({"max_tokens": 9}, "/v1/responses", NEW_VLLM) == {"max_output_tokens": 9}
    assert through({"max_tokens": 9, "max_output_tokens": 3}, "/v1/responses", NEW_VLLM) == {"max_output_tokens": 3}


@pytest.mark.parametrize("value", [None, 1, "system", {"role": "system"}, [], [None, "tools", 3, {"type": 4}]])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1/chat/completions"])
def test_odd_bodies_are_the_engines_to_refuse(path: str, value: Any) -> None:
    """No shape of these keys breaks a rule."""
    keys = ("system", "messages", "tools", "input", "thinking", "reasoning", "encrypted_content", "[sparkdash]")
    for target in TARGETS:
        through(dict.fromkeys(keys, value) | {"x": "x-anthropic-billing-header"}, path, target)


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.22.1", (0, 22, 1)), ("v0.23.0rc1", (0, 23, 0)), ("0.19.1.dev3", (0, 19, 1)), ("b6123", None), (None, None)],
)
def test_versions(text: str | None, version: tuple[int, ...] | None) -> None:
    assert version_of(text) == version


def test_every_rule_is_told_of() -> None:
    """By name, where an owner looks before switching one off."""
    told = DOCS.read_text()
    assert [*dict.fromkeys(one.name for one in COMPAT_RULES)] == ALL
    assert [name for name in ALL if f"`{name}`" not in told] == []


# --- what a profile asks ----------------------------------------------------------------------------------------


def prepared(written: bytes, path: str, profile: Profile) -> bytes:
    route = find_route(path)
    assert route is not None
    asked = peek_body(written, "application/json")
    return RequestPreparer().prepare(written, asked, route, profile, (profile.name,), "0.33.0")[0]


def asked(profile: Profile, path: str, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(prepared(json.dumps(body).encode(), path, profile))
    return made


OSS = Profile(
    name="gpt-oss-120b",
    engine=EngineKind.VLLM,
    models={"target": ModelRef(hf="openai/gpt-oss-120b")},
    serves=("oss", "oss:fast"),
    request={"top_k": 5, "temperature": 1},
    request_set={"chat_template_kwargs": {"enable_thinking": False}, "seed": 7},
    request_strip=("temperature", "user"),
    modes={"high": {"reasoning_effort": "high"}, "fast": {"reasoning_effort": "low", "seed": 1}},
)


def test_a_profile_strips_sets_and_fills_in() -> None:
    """Stripped keys take the profile's default, set ones its value whatever the client wrote, objects key by key."""
    chat = "/v1/chat/completions"
    thinks = {"enable_thinking": True, "x": 1}
    own = {"temperature": 0, "user": "u", "seed": 1, "top_k": 2, "chat_template_kwargs": thinks}
    sent = {"seed": 7, "top_k": 2, "chat_template_kwargs": {"enable_thinking": False, "x": 1}, "temperature": 1}
    assert asked(OSS, chat, model="oss", **own) == {"model": "gpt-oss-120b", **sent}
    assert asked(OSS, "/v1/embeddings", model="gpt-oss-120b", user="u") == {"model": "gpt-oss-120b", "user": "u"}


@pytest.mark.parametrize(
    ("path", "written", "effort"),
    [
        ("/v1/chat/completions", {}, {"reasoning_effort": "high"}),
        ("/v1/chat/completions", {"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
        ("/v1/responses", {"reasoning": {"summary": "auto"}}, {"reasoning": {"summary": "auto", "effort": "high"}}),
        ("/v1/messages", {}, {"output_config": {"effort": "high"}}),
    ],
)
def test_a_mode_asks_the_same_engine_in_another_way(path: str, written: dict[str, Any], effort: dict[str, Any]) -> None:
    """`NAME:high` sets the effort where each protocol has it."""
    made = asked(OSS, path, model="gpt-oss-120b:high", **written)
    assert made["model"] == "gpt-oss-120b"
    assert {key: made[key] for key in effort} == effort


def test_an_alias_with_a_colon_is_no_mode() -> None:
    """Exact names and aliases come first."""
    name = "gpt-oss-120b"
    modes = {name: None, f"{name}:high": "high", "oss:high": "high", "oss:fast": None, f"{name}:absent": None}
    assert {each: OSS.mode(each) for each in modes} == modes
    assert OSS.mode("openai/gpt-oss-120b:high") == "high"


def test_counts_are_asked_for_where_the_client_asked_for_nothing() -> None:
    """A stream's; the client's other options stay."""
    own = {"include_usage": False, "x": 1}
    made = asked(OSS, "/v1/completions", model="gpt-oss-120b", stream=True, stream_options=own)
    assert made["stream_options"] == {"include_usage": True, "x": 1}


def test_fixes_need_a_protocol() -> None:
    body = b'{"system":[{"text":"x-anthropic-billing-header"}]}'
    assert fix(body, Dialect.OTHER, NEW_VLLM) is body


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (
            b'{"stream":true,"x":"\\u00e9 \\"stream_options\\""}\n',
            b'{"stream":true,"x":"\\u00e9 \\"stream_options\\"",%b}\n',
        ),
        (b'{"stream":true,"stream\\u005foptions":{}}', None),
        (b'{"stream":true,"stream_options":null}', None),
        (b'\xef\xbb\xbf{"stream":true}', None),
    ],
    ids=["a text that speaks of them", "an escaped key", "null", "a byte order mark"],
)
def test_options_are_put_at_the_end_where_the_client_named_none(sent: bytes, got: bytes | None) -> None:
    """Then nothing else of the body is touched; in any case the engine sees them once."""
    body = prepared(sent, "/v1/chat/completions", Profile(name="m", engine=EngineKind.VLLM))
    said = json.loads(body.decode("utf-8-sig"), object_pairs_hook=list)
    assert [value for key, value in said if key == "stream_options"] == [[("include_usage", True)]]
    assert got is None or body == got % b'"stream_options":{"include_usage":true}'
