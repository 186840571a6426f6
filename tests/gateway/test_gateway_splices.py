"""Changes to an answer's stream, wherever the stream is cut; all else stays as it is."""

import json
import random
from typing import Any

import pytest
from recorded_streams import cut
from scripted import answering, engine_on_a_socket, streaming

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.gateway.protocol import splices
from sparkdash.gateway.protocol.splices import (
    FRAME_LIMIT,
    WHOLE_LIMIT,
    ContinuedMessage,
    ContinuedResponse,
    Ranking,
    Splice,
    WithoutUsage,
    as_results,
    as_texts,
    mirror_splice,
    rank_splice,
)

USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
WORDS = (
    "a",
    '"choices":[],"usage":{"prompt_tokens":9}',
    "data: ",
    "\n\n",
    "ünï",
    "}\r\n\r\n",
    "x" * 300,
    "\\",
    "[DONE]",
)
STREAMS = 10_000


def through(splice: Splice, pieces: list[bytes]) -> bytes:
    return b"".join([*map(splice.feed, pieces), splice.end()])


def chunk(dice: random.Random, newline: bytes) -> bytes:
    """One frame as engines and proxies make them: chunks with and without counts, comments, named events, filler."""
    separators = dice.choice(((",", ":"), (", ", ": ")))
    choice = {"index": 0, "delta": {"content": dice.choice(WORDS)}}
    usage: Any = dice.choice((None, {"completion_tokens": 1}))
    bodies = (
        {"id": "c", "choices": [choice], "usage": usage},
        {"id": "c", "choices": [choice]},
        {"id": "c", "choices": [], "usage": None},
        {"id": "c", "choices": [], "prompt_filter_results": []},
        {"error": {"message": dice.choice(WORDS)}},
    )
    data = json.dumps(dice.choice(bodies), separators=separators, ensure_ascii=dice.random() < 0.5).encode()
    lead = dice.choice((b"data: ", b"data:", b"event: x" + newline + b"data: "))
    return dice.choice((lead + data, lead + data, lead + data, b": ping", b"")) + newline * 2


def test_ten_thousand_streams_lose_the_counts_and_nothing_else() -> None:
    """Cut anywhere, every byte but the usage chunk's arrives, in order."""
    for seed in range(STREAMS):
        dice = random.Random(seed)
        newline = dice.choice((b"\n", b"\n", b"\r\n"))
        before = b"".join(chunk(dice, newline) for _ in range(dice.randrange(6)))
        after = dice.choice((b"data: [DONE]" + newline * 2, b"", b"data: [DO"))
        usage = dice.choice((USAGE, USAGE.replace(b'":', b'": '), b"")).replace(b"\n", newline)
        assert through(WithoutUsage(), cut(before + usage + after, dice)) == before + after, seed


def test_an_endless_frame_is_not_collected() -> None:
    splice, long = WithoutUsage(), b"data: " + b"x" * FRAME_LIMIT
    assert splice.feed(long) == long
    assert splice.feed(b"y\n\n" + USAGE) == b"y\n\n"


def events(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    frames = [frame for frame in stream.split(b"\n\n") if frame.startswith(b"event: ")]
    return [(frame.split(b"\n")[0][7:].decode(), json.loads(frame[frame.index(b"{") :])) for frame in frames]


@pytest.mark.parametrize(
    "name", ["vllm-0.32.0-base-responses-tool-stream", "llama.cpp-0c1e57098-base-responses-stream"]
)
def test_a_response_goes_on_where_ours_left_off(recorded_body: Any, name: str) -> None:
    """Cut anywhere: no second opening, our id in every event, numbers without a gap or, where the engine has none, without any."""
    body = recorded_body(name)
    theirs = events(body)
    opening = ("response.created", "response.in_progress")
    kept = [(name, event) for name, event in theirs if name not in opening]
    whole = through(ContinuedResponse("resp_x", 7), [body])
    for seed in range(40):
        splice = ContinuedResponse("resp_x", 7)
        assert through(splice, cut(body, random.Random(seed))) == whole
    made = events(whole)
    assert [name for name, _ in made] == [name for name, _ in kept]
    numbered = ["sequence_number" in event for _, event in kept]
    assert [event.get("sequence_number") for _, event in made] == [
        7 + n if has else None for n, has in enumerate(numbered)
    ]
    assert splice.number == (7 + len(kept) - 1 if all(numbered) else 6)
    assert {event["response"]["id"] for _, event in made if "response" in event} == {"resp_x"}
    assert theirs[0][1]["response"]["id"].encode() not in whole


@pytest.mark.parametrize("name", ["vllm-0.32.0-base-messages-tool-stream", "llama.cpp-0c1e57098-base-messages-stream"])
def test_a_message_goes_on_after_our_thinking(recorded_body: Any, name: str) -> None:
    """Cut anywhere: our block is closed, the engine's count on from it, and its prompt's counts come with the last ones."""
    body = recorded_body(name)
    theirs = events(body)
    whole = through(ContinuedMessage(), [body])
    for seed in range(40):
        assert through(ContinuedMessage(), cut(body, random.Random(seed))) == whole
    made = events(whole)
    assert made[0] == ("content_block_stop", {"type": "content_block_stop", "index": 0})
    expected = [
        (name, event | ({"index": event["index"] + 1} if "index" in event else {})) for name, event in theirs[1:]
    ]
    counts = theirs[0][1]["message"]["usage"]
    for name, event in expected:
        if name == "message_delta":
            event["usage"] = counts | {key: value for key, value in event["usage"].items() if value is not None}
    assert made[1:] == expected


@pytest.mark.parametrize("message", ["delta", "message"])
@pytest.mark.parametrize(("said", "mirrored"), [
    ([{"reasoning": 'ünï 😀 \\"', "content": None}], True), ([{"reasoning": "a"}, {"reasoning": None}], True),
    ([{"reasoning": "a", "reasoning_content": "its own"}], False), ([{"reasoning": None}], False),
    ([{"content": '"reasoning":"no"', "tool_calls": [{"function": {"arguments": {"reasoning": "x"}}}]}], False),
])  # fmt: skip
def test_reasoning_is_repeated_where_it_has_one_name(said: list[Any], mirrored: bool, message: str) -> None:
    """In each message that has a text there, and in no other place of the same name; all else is the engine's."""
    answer = {"choices": [{"index": 0, message: each} for each in said], "usage": {"reasoning": "x", "tokens": 1.5}}
    stream, body = message == "delta", json.dumps(answer).encode()
    sent = b": ping\r\n\r\nid: 1\r\ndata: %b\r\n\r\n" % body if stream else body
    told = through(mirror_splice(stream=stream, before=None), [sent[:40], sent[40:]])
    if mirrored:
        answer["choices"][0][message] = said[0] | {"reasoning_content": said[0]["reasoning"]}  # type: ignore[index]
        assert json.loads(told[told.index(b"{") :]) == answer
    else:
        assert told == sent


@pytest.mark.parametrize("body", [
    b"", b'{"reasoning"', b'{"choices":[{"message":{"reasoning":"cut', b'{"choices":[{"message":{"reasoning":"a"}}]',
    b'{"choices":[{"message":{"reasoning":"\xff"}}]}', b'{"choices":[{"message":{"reasoning":"a"},]}',
    b'["reasoning",{"choices":[]}]', b'{"choices":{"message":{"reasoning":"a"}}}',
    b'{"choices":["message",null,{"message":"reasoning"},{"message":{"reasoning":{"text":"a"}}}]}', b'"reasoning"[',
    b'{"reasoning":' + b"[" * 100_000, b'{"choices":[{"message":{"reasoning":"a","reasoning_content":null}}]}',
    b'{"choices":[{"message":{"reasoning":"a"}}],"pad":"' + b"x" * WHOLE_LIMIT + b'"}',
])  # fmt: skip
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
@pytest.mark.parametrize("name", ["base-chat-stream-usage", "base-chat-stream-logprobs", "base-chat-tool-stream"])
async def test_a_recorded_stream_reads_the_same_under_both_names(
    mirrors: Any, recorded_body: Any, name: str, counts: bool
) -> None:
    """Whether the client asked for the counts or not: the row has them."""
    body = recorded_body(f"vllm-0.32.0-{name}")
    mirrors.engine.script = streaming(*cut(body, random.Random(name)))
    reply = await mirrors.chat(stream=True, stream_options={"include_usage": counts})
    frames, thoughts = body.split(b"\n\n"), 0
    sent = frames if counts else frames[:-3] + frames[-2:]
    for before, after in zip(sent, reply.content.split(b"\n\n"), strict=True):
        choices = json.loads(before[6:])["choices"] if before.startswith(b"data: {") else []
        if choices and (reasoning := choices[0]["delta"].get("reasoning")):
            thoughts += 1
            told = json.loads(after[6:])["choices"][0]["delta"]
            assert told == {**choices[0]["delta"], "reasoning_content": reasoning}
        else:
            assert after == before
    assert thoughts > 3
    row, usage = await mirrors.ended(), json.loads(frames[-3][6:])["usage"]
    assert (row.state, row.completion_tokens, row.error) == ("done", usage["completion_tokens"], None)


@pytest.mark.parametrize(
    ("path", "both"),
    [("/v1/chat/completions", True), ("/upstream/alpha/v1/chat/completions", False), ("/v1/completions", False)],
)
async def test_a_whole_answer_through_the_gateway(mirrors: Any, path: str, both: bool) -> None:
    """In chats only, and not where an engine is asked as it is."""
    body = b'{"choices":[{"message":{"reasoning" : "a","content":"b"}}],"usage":{"completion_tokens":7}}'

    mirrors.engine.script = answering(body)
    reply = await mirrors.client.post(path, json={"model": "alpha", "messages": []})
    said = {"reasoning": "a", "content": "b"} | ({"reasoning_content": "a"} if both else {})
    assert reply.json()["choices"][0]["message"] == said
    assert both or reply.content == body
    assert (await mirrors.ended()).completion_tokens == 7
    again = await mirrors.client.post(path, json={"model": "alpha", "messages": []})
    assert again.content == reply.content


async def test_a_profile_that_does_not_ask_gets_the_engines_bytes(house: Any, recorded_body: Any) -> None:
    body = recorded_body("vllm-0.32.0-base-chat-stream-usage")

    house.engine.script = streaming(body)
    assert (await house.chat(stream=True)).content == body


async def test_what_another_engine_answers_instead_is_its_own(mirrors: Any, tools: Any) -> None:
    """The first one ended before a byte of its stream; the next one's profile asks for nothing."""
    body = b'{"choices":[{"message":{"reasoning":"a"}}]}'

    async def end(_seen: Any, wire: Any) -> None:
        mirrors.catalog.profiles["alpha"] = Profile(name="alpha", engine=EngineKind.VLLM)
        await wire.head()
        wire.abort()

    async with engine_on_a_socket(end) as dying:
        mirrors.supervisor.urls = [dying.url]
        mirrors.engine.script = answering(body)
        reply = await mirrors.chat(stream=True)
    assert (reply.content, reply.headers.get("content-length")) == (body, str(len(body)))


ROWS = [{"index": 1, "score": 0.2, "text": "a stone"}, {"index": 0, "score": 0.9, "text": "a cat"}]


def rewritten(**asked: Any) -> tuple[Any, Ranking | None]:
    body, ranking = as_texts(json.dumps(asked).encode(), "ranks")
    return json.loads(body), ranking


def test_documents_become_texts_and_the_servers_own_keys_stay() -> None:
    sent, ranking = rewritten(model="m", query="q", documents=["a", {"text": "b"}], top_n=1, truncate=True)
    assert sent == {"query": "q", "texts": ["a", "b"], "return_text": False, "truncate": True}
    assert ranking == Ranking("ranks", 1, False)


@pytest.mark.parametrize("asked", [{"query": "q", "texts": ["a"]}, {"query": "q"}, {"documents": "a"}], ids=str)
def test_a_request_in_the_servers_words_or_without_documents_is_left_alone(asked: dict[str, Any]) -> None:
    assert rewritten(**asked) == (asked, None)


def test_results_are_best_first_as_many_as_asked_for() -> None:
    found = json.loads(as_results(json.dumps(ROWS).encode(), Ranking("m", None, True)))
    assert found["model"] == "m"
    assert [(row["index"], row["relevance_score"]) for row in found["results"]] == [(0, 0.9), (1, 0.2)]
    assert found["results"][0]["document"] == {"text": "a cat"}
    one = json.loads(as_results(json.dumps(ROWS).encode(), Ranking("m", 1, False)))
    assert one["results"] == [{"index": 0, "relevance_score": 0.9}]


@pytest.mark.parametrize("body", [b'{"error": "too long", "error_type": "Validation"}', b"[1]", b"cut", b"null"])
def test_another_answer_is_left_alone(body: bytes) -> None:
    """An error keeps the server's words."""
    assert as_results(body, Ranking("m", None, False)) == body


def test_an_answer_is_held_until_it_is_whole_and_a_long_one_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps(ROWS).encode()
    splice = rank_splice(Ranking("m", 1, False))
    assert splice.feed(whole[:9]) + splice.feed(whole[9:]) == b""
    assert json.loads(splice.end())["results"][0]["index"] == 0
    monkeypatch.setattr(splices, "ANSWER_LIMIT", 20)
    long = rank_splice(Ranking("m", 1, False))
    assert long.feed(whole[:9]) + long.feed(whole[9:40]) + long.feed(whole[40:]) + long.end() == whole
