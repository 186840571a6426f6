"""Tokens of what is not loaded: the counts of a real vLLM, what only an engine can count, and the process that does it."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged
from sparkdash.domain.profile import EngineKind, ModelRef, Mount, Profile
from sparkdash.engines.adapter import Prompting
from sparkdash.engines.registry import adapter
from sparkdash.gateway import child_process
from sparkdash.gateway.count import __main__
from sparkdash.gateway.count import counter as room
from sparkdash.gateway.count.chat import (
    CountRequest,
    InvalidPrompt,
    Uncountable,
    decode_count_request,
    encode_count_request,
)
from sparkdash.gateway.count.counter import TokenCounter
from sparkdash.gateway.count.template import Template
from sparkdash.settings import Settings

TINY = Path(__file__).parents[1] / "data" / "count"
CASES = json.loads((TINY / "cases.json").read_text("utf-8"))
"""Templates and requests of ours, and what vLLM 0.32.0 counted (tests/real/counts.py)."""
ASK: dict[str, Any] = CASES["requests"]["chat"]
COUNTED = {"input_tokens": CASES["counts"]["plain"]["chat"]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
COUNT = "/v1/messages/count_tokens"


def order(folder: Path = TINY, **more: Any) -> CountRequest:
    return CountRequest(model=ModelRef(path=str(folder)), hf_home="/nowhere", **more)


@pytest.mark.parametrize("name", CASES["templates"])
def test_the_counts_are_those_of_the_real_engine(name: str) -> None:
    """Plain chats, system prompts, tools, conversations with calls and results, thinking, a template's own words."""
    made: dict[str, int | None] = {}
    for asked, request in CASES["requests"].items():
        try:
            made[asked] = __main__.count_tokens(
                *decode_count_request(
                    encode_count_request(order(template=CASES["templates"][name]), json.dumps(request).encode())
                )
            )
        except InvalidPrompt:
            made[asked] = None
    assert made == CASES["counts"][name]


TURN, END = "{% for m in messages %}", "{% endfor %}"
WALK = "{% for c in x %}{{ c }}{% endfor %}{% endmacro %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (TURN + "{{ m.content }}" + END, False),
        (TURN + "{% for c in m['content'] | list %}{{ c }}{% endfor %}" + END, True),
        (TURN + "{% set content = m.content %}{% for c in content %}{{ c }}{% endfor %}" + END, True),
        (TURN + "{% set body = m.content %}{% for c in body %}{{ c }}{% endfor %}" + END, False),
        ("{% set some = messages[1:] %}{% for m in some %}{% for c in m.content %}{{ c }}{% endfor %}" + END, True),
        ("{% macro r(x, y) %}" + WALK + TURN + "{{ r(m.content, 1) }}" + END, True),
        ("{% macro r(y, x) %}" + WALK + TURN + "{{ r(1, x=m['content']) }}" + END, True),
        ("{% macro r(y, x) %}" + WALK + TURN + "{{ r(m.content, m.text) }}" + END, False),
        (TURN + "{% for t in m.tool_calls %}{{ t }}{% endfor %}" + END, False),
    ],
)
def test_a_template_that_walks_through_content_gets_parts(template: str, expected: bool) -> None:
    """As vLLM 0.32.0 tells them apart; 32 templates were compared, those of published models among them."""
    assert Template(template, {}).in_parts is expected


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "an image"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}]}
                ]
            },
            "an image",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "a document"),
        ({"messages": [{"role": "assistant", "content": [{"type": "server_tool_use"}]}]}, "'server_tool_use'"),
        ({**ASK, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search' has no input_schema"),
    ],
)
def test_what_only_an_engine_can_count_is_not_estimated(body: dict[str, Any], why: str) -> None:
    with pytest.raises(Uncountable, match=why):
        __main__.count_tokens(order(), body)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"\xff",
        b'{"messages": "hi"}',
        b'{"messages": []}',
        b'{"messages": [{"role": "pope", "content": "hi"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}',
        b'{"messages": [{"role": "user", "content": {}}]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "tools": {}}',
        b'{"messages": [{"role": "user", "content": "hi"}], "output_config": {"effort": "much"}}',
    ],
)
def test_what_is_not_of_the_protocol_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidPrompt):
        __main__.count_tokens(*decode_count_request(encode_count_request(order(), body)))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the tiny model's files, to be spoiled."""
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def told(folder: Path, **changes: Any) -> None:
    """Write changed keys into tokenizer_config.json."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "there is no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json cannot be read"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("{"), "tokenizer_config.json cannot be read"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "no chat template"),
        (lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"), "its chat template cannot be read"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "gpt_oss"}'), "gpt_oss"),
        (lambda folder: (folder / "tekken.json").touch(), "Mistral"),
        (shutil.rmtree, "is not on this box"),
    ],
)
def test_a_model_that_lacks_something_says_what(model: Path, spoil: Callable[[Path], object], why: str) -> None:
    spoil(model)
    with pytest.raises(Uncountable, match=why):
        __main__.count_tokens(order(model), ASK)


def test_a_gguf_file_has_no_tokenizer_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    with pytest.raises(Uncountable, match=r"m\.gguf is one file"):
        __main__.count_tokens(order(tmp_path / "m.gguf"), ASK)


def test_templates_are_found_where_models_keep_them(model: Path) -> None:
    """A file of its own, tokenizer_config.json (one, or one for tools beside it), a processor's file; each is read anew once it changes."""
    tool = {"name": "t", "input_schema": {}}

    def counts() -> tuple[int, int]:
        return __main__.count_tokens(order(model), ASK), __main__.count_tokens(order(model), {**ASK, "tools": [tool]})

    (model / "chat_template.jinja").write_text("spark")
    told(model, chat_template="spark memory")
    first = counts()
    (model / "chat_template.jinja").unlink()
    second = counts()
    pair = [{"name": "default", "template": "spark"}, {"name": "tool_use", "template": "spark memory"}]
    told(model, chat_template=pair)
    third = counts()
    told(model, chat_template=None)
    (model / "chat_template.json").write_text(json.dumps({"chat_template": "spark memory"}))
    assert first[0] == first[1] < second[0] == second[1]
    assert third == (first[0], second[0])
    assert counts() == second


def test_the_tokenizer_is_as_the_engine_has_it(model: Path) -> None:
    """Tokens of tokenizer_config.json alone are tokens; a length that files were cut to in training cuts nothing."""
    plain = __main__.count_tokens(order(model), {"messages": [{"role": "user", "content": "<|call|>" * 3}]})
    told(model, added_tokens_decoder={"1024": {"content": "<|call|>", "special": True}})
    file = model / "tokenizer.json"
    cut = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation": cut}))
    empty = __main__.count_tokens(order(model), {"messages": [{"role": "user", "content": ""}]})
    assert (
        __main__.count_tokens(order(model), {"messages": [{"role": "user", "content": "<|call|>" * 3}]})
        == empty + 3
        < plain
    )


def test_what_a_profile_says_of_prompts_is_heeded(model: Path) -> None:
    """Its template's words, the client's before them; messages in parts or whole; a file that only the engine's mounts show."""
    words = "{{ mood }}{% for m in messages %}{{ m.content }}{% endfor %}"
    base = __main__.count_tokens(order(template=words), ASK)
    assert __main__.count_tokens(order(template=words, words={"mood": "spark"}), ASK) > base
    assert (
        __main__.count_tokens(
            order(template=words, words={"mood": "spark"}), ASK | {"chat_template_kwargs": {"mood": ""}}
        )
        == base
    )
    assert __main__.count_tokens(order(template=words, in_parts=True), ASK) > base
    (model / "other.jinja").write_text(words)
    mounts = (Mount(source=str(model), target="/templates"),)
    assert __main__.count_tokens(order(template="/templates/other.jinja", mounts=mounts), ASK) == base
    with pytest.raises(Uncountable, match="/templates/none"):
        __main__.count_tokens(order(template="/templates/none.jinja", mounts=mounts), ASK)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, Prompting()),
        ({"tokenizer-mode": "auto", "chat-template-content-format": "openai"}, Prompting(in_parts=True)),
        ({"chat_template": "/t.jinja", "default-chat-template-kwargs": '{"a": 1}'}, Prompting("/t.jinja", {"a": 1})),
        ({"default-chat-template-kwargs": {"a": 1}}, Prompting(words={"a": 1})),
        ({"default-chat-template-kwargs": "[1]"}, "its profile's --default-chat-template-kwargs is no JSON object"),
        ({"tokenizer": "org/other"}, "its profile has --tokenizer"),
    ],
)
def test_flags_that_change_prompts(args: dict[str, Any], expected: Prompting | str) -> None:
    assert adapter(EngineKind.VLLM).prompting(Profile(name="p", engine=EngineKind.VLLM, args=args)) == expected


def test_prompts_of_other_engines_are_not_guessed() -> None:
    """SGLang hands a template its tools in another shape, to begin with."""
    said = adapter(EngineKind.SGLANG).prompting(Profile(name="p", engine=EngineKind.SGLANG))
    assert isinstance(said, str)
    assert "sglang" in said


# --- through the gateway, with the real process -------------------------------------------------------------------


@pytest.fixture
async def house(engine: Any, settings: Settings, tools: Any, tmp_path: Path) -> AsyncIterator[Any]:
    """`alpha` runs; `beta/fast` does not, and is the tiny model. `.counter` is its counter."""
    async with (
        TokenCounter(tmp_path, 60, tmp_path) as counter,
        tools.living_house(engine, settings, counter=counter) as built,
    ):
        sleeps = built.catalog.profiles["beta/fast"]
        built.catalog.profiles["beta/fast"] = sleeps.model_copy(update={"models": {"target": ModelRef(path=str(TINY))}})
        built.counter = counter
        yield built


async def test_a_request_to_what_is_not_loaded_is_counted(house: Any, tools: Any) -> None:
    """As many at once as Claude Code sends, loading or not; nobody asks for a lease, and what runs counts for itself."""

    async def ask(model: str = "beta/fast", **more: Any) -> Any:
        return await house.client.post(f"{COUNT}?beta=true", json={"model": model, **ASK, **more})

    answers = await asyncio.gather(*(ask() for _ in range(25)))
    assert [answer.json() for answer in answers] == [COUNTED] * 25
    billed = await ask(system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.329"}])
    assert billed.json() == COUNTED
    house.bus.publish(EngineChanged(engine=tools.ready("beta/fast", EngineState.LOADING)))
    assert (await ask()).json() == COUNTED
    assert house.supervisor.leases == []

    refused = await ask(messages=[])
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    image = await ask(messages=[{"role": "user", "content": [IMAGE]}])
    assert (image.status_code, image.json()["error"]["code"]) == (404, "not_loaded")
    assert "the request has an image" in image.json()["error"]["message"]

    elsewhere = ModelRef(hf="org/nowhere")
    house.catalog.profiles["huge"] = Profile(name="huge", engine=EngineKind.VLLM, models={"target": elsewhere})
    absent = (await ask("huge")).json()["error"]["message"]
    assert "org/nowhere is not in the cache" in absent
    assert "`sparkdash pull` fetches it. Send it a message" in absent

    assert (await ask("alpha")).json() == {"ok": True}
    assert house.supervisor.leases == ["alpha"]


async def test_a_strangers_model_harms_nobody(house: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wants all memory gets none, one that looks around sees nothing, one that never ends is ended; files of any shape are a reason at most."""
    good = house.catalog.profiles["beta/fast"]

    async def ask(template: str | None = None) -> Any:
        changed = good if template is None else good.model_copy(update={"args": {"chat-template": template}})
        house.catalog.profiles["beta/fast"] = changed
        return (await house.client.post(COUNT, json={"model": "beta/fast", **ASK})).json()

    odd = Path(shutil.copytree(TINY, tmp_path / "odd"))
    told(odd, added_tokens_decoder={"1": []})
    house.catalog.profiles["beta/fast"] = good.model_copy(update={"models": {"target": ModelRef(path=str(odd))}})
    answer = await house.client.post(COUNT, json={"model": "beta/fast", **ASK})
    assert "unknown shape" in answer.json()["error"]["message"]
    assert "takes too much" in (await ask("{{ 'x' * 10 ** 11 }}"))["error"]["message"]
    assert "unsafe" in (await ask("{{ messages.__class__.__mro__ }}"))["error"]["message"]
    assert await ask() == COUNTED
    first = os.pidfd_open(house.counter.pid)
    monkeypatch.setattr(room, "LIMIT_S", 0.3)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    assert "longer than 0.3 s" in (await ask(endless))["error"]["message"]
    await asyncio.to_thread(select.select, [first], [], [])
    os.close(first)
    monkeypatch.setattr(room, "LIMIT_S", 30)
    assert await ask() == COUNTED


async def test_without_what_counts_the_answer_says_what_to_install(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A 404 still: Claude Code then makes an estimate of its own."""
    monkeypatch.setattr(child_process.importlib.util, "find_spec", lambda _name: None)
    answer = await house.client.post(COUNT, json={"model": "beta/fast", **ASK})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_loaded")
    assert "pip install 'sparkdash[translate]'" in answer.json()["error"]["message"]
