"""`mirror_reasoning`: a chat's thinking under both of its names, and nothing else changed, wherever the answer is cut."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.gateway.protocol.splices import WHOLE_LIMIT, Splice, WithoutUsage, mirror_splice

TEXTS = (
    '"I think"',
    '""',
    r'"\"reasoning\":\"no\" \\"',
    r'"\ud83d\ude00 \u00fc\n"',
    '"ünï 😀"',
    '"data: {}\\n\\n"',
    '"' + "x" * 300 + '"',
)
OTHERS = (
    '"content":"{\\"reasoning\\":\\"not this\\"}"',
    '"content":null',
    '"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\\"reasoning\\": \\"nor this\\"}"}}]',
    '"tool_calls":[{"function":{"arguments":{"reasoning":"nor this","delta":{"reasoning":"x"}}}}]',
    '"role":"assistant"',
    '"reasoning_details":[{"reasoning":"x"}]',
)
ELSEWHERE = (
    '"usage":{"reasoning":"x","tokens":1.50}',
    '"id":"c","delta":{"reasoning":"x"}',
    '"model":"\\"reasoning\\":"',
)
ODD = (
    ": ping",
    "data: [DONE]",
    'data: {"reasoning"',
    'data: ["reasoning"]',
    'data: {"choices":"reasoning"}',
    "reasoning",
)


def cut(data: bytes, dice: random.Random) -> list[bytes]:
    """The same bytes in pieces: whole, byte by byte, or anything between."""
    places = dice.choice((0, 1, 3, 20, len(data)))
    edges = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(places))})
    return [data[start:end] for start, end in pairwise(edges)]


def through(splice: Splice, pieces: list[bytes]) -> bytes:
    return b"".join([*map(splice.feed, pieces), splice.end()])


def told(dice: random.Random, message: str) -> tuple[str, str]:
    """One answer's JSON as its engine wrote it, and as its client is to read it."""
    comma, colon = dice.choice(((",", ":"), (", ", ": "), (" ,\n ", " :  ")))
    spaced = comma != ","
    plain, both = [], []
    for index in range(dice.choice((0, 1, 1, 1, 2))):
        members, after = dice.sample(OTHERS, dice.randrange(3)), dice.choice(TEXTS)
        said = dice.choice((f'"reasoning"{colon}{after}',) * 4 + (f'"reasoning"{colon}null', ""))
        twice = f'{said},"reasoning_content":{after}' if said.endswith(after) else said
        if dice.random() < 0.1:
            members, twice = [*members, '"reasoning_content":"its own"'], said
        at = dice.randrange(len(members) + 1)
        for made, word in ((plain, said), (both, twice)):
            inside = comma.join([*members[:at], *([word] if word else []), *members[at:]])
            made.append(f'{{"index"{colon}{index}{comma}"{message}"{colon}{{{inside}}}{comma}"logprobs"{colon}null}}')
    around = dice.sample(ELSEWHERE, dice.randrange(3))
    gap = " " if spaced else ""
    lists = (f'"choices"{colon}[{gap}{comma.join(choices)}{gap}]' for choices in (plain, both))
    first, second = (f"{{{comma.join([*around, choices])}}}" for choices in lists)
    return first, second


def frames(dice: random.Random) -> tuple[bytes, bytes]:
    """A stream's, the same before and after."""
    newline = dice.choice(("\n", "\n", "\r\n"))
    plain, both = "", ""
    for _ in range(dice.randrange(6)):
        lead = dice.choice(("data: ", "data:", f"id: 1{newline}data: "))
        one, other = told(dice, "delta")
        if dice.random() < 0.2:
            lead, one, other = "", *(dice.choice(ODD),) * 2
        plain += lead + one.replace("\n", " ") + newline * 2
        both += lead + other.replace("\n", " ") + newline * 2
    return plain.encode(), both.encode()


def test_streams_have_both_names_wherever_they_are_cut() -> None:
    """In each message that has a text there, and in no other place of the same name; every other byte is the engine's."""
    for seed in range(1500):
        dice = random.Random(seed)
        plain, both = frames(dice)
        assert through(mirror_splice(stream=True, before=None), cut(plain, dice)) == both, seed
    assert json.loads(told(random.Random(1), "delta")[1])  # what is asked for is JSON


def test_whole_answers_have_both_names_wherever_they_are_cut() -> None:
    """As streams have."""
    for seed in range(500):
        dice = random.Random(seed)
        plain, both = (f"\n{body}\n".encode() for body in told(dice, "message"))
        assert through(mirror_splice(stream=False, before=None), cut(plain, dice)) == both, seed


@pytest.mark.parametrize("name", ["base-chat-stream-logprobs", "base-chat-tool-stream", "draft-chat-stream-usage"])
def test_a_recorded_stream_reads_the_same_under_both_names(recorded_body: Any, name: str) -> None:
    """vLLM's own, with the chunk of counts taken out before."""
    body = recorded_body(f"vllm-0.32.0-{name}")
    dice = random.Random(name)
    without = through(WithoutUsage(), [body])
    made = through(mirror_splice(stream=True, before=WithoutUsage()), cut(body, dice))
    thoughts = 0
    for before, after in zip(without.split(b"\n\n"), made.split(b"\n\n"), strict=True):
        if before.startswith(b"data: {") and (delta := json.loads(before[6:])["choices"][0]["delta"]).get("reasoning"):
            thoughts += 1
            assert json.loads(after[6:])["choices"][0]["delta"] == {**delta, "reasoning_content": delta["reasoning"]}
        else:
            assert after == before
    assert thoughts > 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"reasoning"',
        b'{"choices":[{"message":{"reasoning":"cut',
        b'{"choices":[{"message":{"reasoning":"a"}}]',
        b'{"choices":[{"message":{"reasoning":"\xff"}}]}',
        b'{"choices":[{"message":{"reasoning":"a"},]}',
        b'["reasoning",{"choices":[]}]',
        b'{"choices":{"message":{"reasoning":"a"}}}',
        b'{"choices":["message",null,{"message":"reasoning"},{"message":{"reasoning":{"text":"a"}}}]}',
        b'"reasoning"[',
        b'{"reasoning":' + b"[" * 100_000,
        b'{"choices":[{"message":{"reasoning":"a","reasoning_content":null}}]}',
        b'{"choices":[{"message":{"reasoning":"a"}}],"pad":"' + b"x" * WHOLE_LIMIT + b'"}',
    ],
)
def test_what_cannot_be_read_passes_as_it_is(body: bytes) -> None:
    """No JSON, none of a chat's shape, an engine that says both itself, or more than is held back."""
    half = len(body) // 2
    assert through(mirror_splice(stream=False, before=None), [body[:half], body[half:]]) == body


@pytest.fixture
def mirrors(house: Any) -> Any:
    """The house, where `alpha` asks for both names."""
    house.catalog.profiles["alpha"] = Profile(name="alpha", engine=EngineKind.VLLM, mirror_reasoning=True)
    return house


@pytest.mark.parametrize("counts", [True, False])
async def test_a_stream_through_the_gateway(mirrors: Any, recorded_body: Any, counts: bool) -> None:
    """Whether the client asked for the counts or not, it reads both names, and the row has the engine's counts."""
    body = recorded_body("vllm-0.32.0-base-chat-stream-usage")

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        for piece in cut(body, random.Random(counts)):
            await wire.chunk(piece)
        await wire.end()

    mirrors.engine.script = script
    reply = await mirrors.chat(stream=True, stream_options={"include_usage": counts})
    before = None if counts else WithoutUsage()
    assert reply.content == through(mirror_splice(stream=True, before=before), [body]) != body
    assert (reply.content.find(b'"choices":[]') > 0) is counts
    row = await mirrors.ended()
    usage = json.loads(body.split(b"\n\n")[-3][6:])["usage"]
    assert (row.state, row.completion_tokens, row.error) == ("done", usage["completion_tokens"], None)
    assert row.ttft_s is not None


@pytest.mark.parametrize(
    ("path", "both"),
    [("/v1/chat/completions", True), ("/upstream/alpha/v1/chat/completions", False), ("/v1/completions", False)],
)
async def test_a_whole_answer_through_the_gateway(mirrors: Any, path: str, both: bool) -> None:
    """In chats only, and not where an engine is asked as it is."""
    body = b'{"choices":[{"message":{"reasoning" : "a","content":"b"}}],"usage":{"completion_tokens":7}}'

    async def script(_seen: Any, wire: Any) -> None:
        await wire.answer(body)

    mirrors.engine.script = script
    reply = await mirrors.client.post(path, json={"model": "alpha", "messages": []})
    assert reply.content == (body.replace(b'"a"', b'"a","reasoning_content":"a"') if both else body)
    assert (await mirrors.ended()).completion_tokens == 7
    again = await mirrors.client.post(path, json={"model": "alpha", "messages": []})
    assert again.content == reply.content


async def test_a_profile_that_does_not_ask_gets_the_engines_bytes(house: Any, recorded_body: Any) -> None:
    """As ever."""
    body = recorded_body("vllm-0.32.0-base-chat-stream-usage")

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(body)
        await wire.end()

    house.engine.script = script
    assert (await house.chat(stream=True)).content == body


async def test_what_another_engine_answers_instead_is_its_own(mirrors: Any, tools: Any) -> None:
    """The first one ended before a byte of its stream; the next one's profile asks for nothing."""
    body = b'{"choices":[{"message":{"reasoning":"a"}}]}'

    async def end(_seen: Any, wire: Any) -> None:
        mirrors.catalog.profiles["alpha"] = Profile(name="alpha", engine=EngineKind.VLLM)
        await wire.head()
        wire.abort()

    async def answer(_seen: Any, wire: Any) -> None:
        await wire.answer(body)

    async with tools.engine_on_a_socket(end) as dying:
        mirrors.supervisor.urls = [dying.url]
        mirrors.engine.script = answer
        reply = await mirrors.chat(stream=True)
    assert (reply.content, reply.headers.get("content-length")) == (body, str(len(body)))
