"""Work and memory for a request grow no faster than the request, whatever in it is large.

Every route is asked with a hundred thousand bytes in all of its fields at once, and in the one that names a model.
"""

import gc
import json
import re
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from routes import Route, every_route, shown
from thorough import FULL

from sparkdash import limits
from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter
from sparkdash.gateway.apis import ollama_wire
from sparkdash.gateway.control.app import HANDLERS
from sparkdash.gateway.control.openapi import describe
from sparkdash.gateway.http.capture import without_secrets
from sparkdash.gateway.protocol import prepare
from sparkdash.gateway.protocol.route import Dialect, find_route
from sparkdash.units import MIB

SIZE = 100_000
FLOOR_S = 0.2
"""Processor time that any request may take: a loaded box, a search for garbage."""
PER_BYTE_S = 2e-6
"""Beyond it. Eight times what the slowest needed (24 ms for 100,000 bytes); what is quadratic takes a thousand times as much."""
FLOOR_BYTES = 96 * MIB
BYTES_PER_BYTE = 100
"""A list of empty lists takes seventy."""
SPOKEN = (
    "model", "name", "stream", "stream_options", "messages", "prompt", "input", "system", "tools", "options", "format", "think",
    "images", "suffix", "context", "keep_alive", "service_tier", "max_tokens", "client_metadata", "chat_template_kwargs",
)  # fmt: skip
"""Fields of what clients of models send."""
NAMES = {"model", "profile", "holder", "a"}
HEADERS = (
    "Accept", "Accept-Encoding", "Access-Control-Request-Headers", "Api-Key", "Authorization", "Connection", "Content-Encoding",
    "Content-Type", "Cookie", "Expect", "Host", "Last-Event-ID", "Origin", "TE", "Trailer", "Upgrade", "User-Agent", "X-Api-Key",
    "X-Sparkdash-Lease", "X-Sparkdash-Priority", "X-Sparkdash-Progress", "X-Anything",
)  # fmt: skip

Values = Callable[[int], str]
VALUES: dict[str, Values] = {
    "letters": lambda n: json.dumps("x" * n),
    "slashes": lambda n: json.dumps("a/" * (n // 2)),
    "colons": lambda n: json.dumps("alpha:" * (n // 6)),
    "stars": lambda n: json.dumps("claude-" + "haiku-*" * (n // 7)),
    "controls": lambda n: json.dumps("\0" * (n // 6)),
    "surrogates": lambda n: '"' + "\\ud83d" * (n // 6) + '"',
    "digits": lambda n: "9" * n,
    "fraction": lambda n: "0." + "1" * n,
    "exponent": lambda n: "1e" + "9" * n,
    "lists": lambda n: "[" * (n // 2) + "]" * (n // 2),
    "objects": lambda n: '{"a":' * (n // 6) + "1" + "}" * (n // 6),
    "deep": lambda n: "[" * 900 + "]" * 900,
    "deeper": lambda n: '{"a":' * 970 + "1" + "}" * 970,
    "many": lambda n: "[" + ",".join("1" * (n // 2)) + "]",
    "nulls": lambda n: "[" + ",".join(["null"] * (n // 5)) + "]",
    "texts": lambda n: json.dumps(["x"] * (n // 4)),
    "empties": lambda n: json.dumps([[]] * (n // 4)),
    "turns": lambda n: json.dumps([{"role": "system", "content": "x"}] * (n // 34)),
    "calls": lambda n: json.dumps(calls(n // 100)),
    "keys": lambda n: json.dumps({f"k{i}": 1 for i in range(n // 10)}),
    "twins": lambda n: "{" + ",".join(['"model":1'] * (n // 10)) + "}",
}
"""JSON of about so many bytes."""


def calls(number: int) -> list[dict[str, Any]]:
    """As many tool calls as answers to them, in the other order."""
    asked = [{"function": {"name": f"f{i}", "arguments": {}}} for i in range(number)]
    answers = [{"role": "tool", "tool_name": f"f{i}", "content": "x"} for i in reversed(range(number))]
    return [{"role": "assistant", "tool_calls": asked}, *answers]


WHOLE: dict[str, Callable[[int], bytes]] = {
    "space": lambda n: b" " * n,
    "open": lambda n: b"[" * n,
    "opened": lambda n: b'{"a":' * (n // 5),
    "string": lambda n: b'"' + b"x" * n,
    "unknown": lambda n: json.dumps({"model": "alpha", **{f"k{i}": i for i in range(n // 14)}}).encode(),
    "again": lambda n: b'{"model":"alpha"' + b',"model":"alpha"' * (n // 16) + b"}",
    "escaped": lambda n: b'{"model":"beta/fast","x":"' + b"\\u0041" * (n // 6) + b'"}',
    "edited": lambda n: b'{"model":"beta/fast","temperature":0,"seed":' + b"9" * n + b"}",
    "edited deep": lambda n: b'{"model":"beta/fast","temperature":0,"x":' + b"[" * 960 + b"]" * 960 + b"}",
    "bytes": lambda n: b"\xff" * n,
}
FORMS: dict[str, Callable[[int], bytes]] = {
    "parts": lambda n: b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\ny\r\n' * (n // 56) + b"--x--\r\n",
    "borders": lambda n: (b"\r\n--x" * 1600 + b"\r\n\r\n") * (n // 8000),
    "lines": lambda n: b"--x\r\n" + b"a: b\r\n" * (n // 6) + b"\r\n",
    "parameters": lambda n: b"--x\r\nContent-Disposition: form-data" + b"; a=b" * (n // 5) + b"\r\n\r\n\r\n--x--",
}
PATHS = ("{x}", "a/", "/", "%2f", "%41", "..", "%c3%28", "v1/")
QUERIES = ("model={x}", "a=b&", "&", "%41", "model=a/&", "check={x}", "since={9}", "tail={9}", "follow={x}")
FIELD_VALUES = ("{x}", "a, ", "a; ", "9", "a=b; ", "*", "codex-", "Python/")


def filled(pattern: str, size: int) -> str:
    """The pattern with its open part so large, or itself so often."""
    if "{" in pattern:
        return pattern.replace("{x}", "x" * size).replace("{9}", "9" * size)
    return pattern * (size // len(pattern))


class Case:
    """One request, and what in it is large."""

    def __init__(
        self, what: str, route: Route, *, path: str = "", headers: str = "", body: bytes | None = None
    ) -> None:
        method, given = route
        names = {"NAME": "alpha", "PROFILE": "alpha", "ID": "x", "RUN": "r", "PATH": "embeddings", "FILE": "main.js"}
        self.what = what
        at = path or re.sub("[A-Z]+", lambda found: names[found[0]], given)
        kind = "" if "Content-Type:" in headers else "Content-Type: application/json\r\n"
        host = "" if "Host:" in headers else "Host: localhost\r\n"
        body = b"{}" if body is None and method == "POST" else body or b""
        head = f"{method} {at} HTTP/1.1\r\n{host}{kind}{headers}Content-Length: {len(body)}\r\n\r\n"
        self.sent = head.encode("latin-1") + body


def heads(route: Route) -> Iterator[Case]:
    """Parts before a body, also just below each limit: a part that is too large is refused at once."""
    _, path = route
    plain = re.sub("[A-Z]+", "alpha", path)
    for at in (SIZE, limits.URL - 200):
        for pattern in PATHS:
            large = filled(pattern, at)
            yield Case(f"path + {pattern}", route, path=f"{plain}/{large}")
            if re.search("[A-Z]", path):
                yield Case(f"path {pattern}", route, path=re.sub("[A-Z]+", lambda _, large=large: large, path))
        for pattern in QUERIES:
            yield Case(f"query {pattern}", route, path=f"{plain}?{filled(pattern, at)}")
    for at in (SIZE, limits.HEAD - 4096):
        for pattern in FIELD_VALUES:
            each = "".join(f"{name}: {filled(pattern, at // len(HEADERS))}\r\n" for name in HEADERS if name != "Host")
            yield Case(f"all headers {pattern}", route, headers=each)
            for name in ("User-Agent", "X-Anything"):
                yield Case(f"{name}: {pattern}", route, headers=f"{name}: {filled(pattern, at)}\r\n")
    yield Case("many headers", route, headers="a: b\r\n" * (SIZE // 6))


def bodies(route: Route) -> Iterator[Case]:
    fields = fields_of(route)
    for shape, value in VALUES.items():
        for name in NAMES & {*fields}:
            yield Case(f"{name} {shape}", route, body=f'{{"{name}":{value(SIZE)}}}'.encode())
        part = value(SIZE // len(fields))
        members = ",".join(f'"{name}":{part}' for name in fields if name not in NAMES)
        yield Case(f"all fields {shape}", route, body=f'{{"model":"beta/fast",{members}}}'.encode())
        yield Case(f"all fields without a model {shape}", route, body=f"{{{members}}}".encode())
    for shape, whole in WHOLE.items():
        yield Case(f"body {shape}", route, body=whole(SIZE))
    for shape, whole in FORMS.items():
        headers = "Content-Type: multipart/form-data; boundary=x\r\n"
        yield Case(f"form {shape}", route, headers=headers, body=whole(SIZE))


def fields_of(route: Route) -> tuple[str, ...]:
    """As the route's description has them; of those of clients all that any of them sends."""
    method, path = route
    found = next((given for given in DESCRIBED["paths"] if shown(given) == path), "")
    body = DESCRIBED["paths"].get(found, {}).get(method.lower(), {}).get("requestBody")
    if body is None:
        return SPOKEN
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    return tuple(DESCRIBED["components"]["schemas"][name].get("properties", ())) or ("a",)


async def first_of(house: Any, sent: bytes) -> bytes:
    reader, writer = await house.connect(sent)
    try:
        with suppress(ConnectionError):
            await writer.drain()
        with suppress(ConnectionError):
            return await reader.read(65536)
        return b""
    finally:
        writer.transport.abort()


def peak() -> int:
    """Bytes that this process had at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def excess(house: Any, case: Case) -> str | None:
    """The fault in how that request went, or ""."""
    memory, began = peak(), time.process_time()
    got = await first_of(house, case.sent)
    took, grown = time.process_time() - began, peak() - memory
    size = len(case.sent)
    if got.startswith((b"HTTP/1.1 500", b"HTTP/1.1 503")):
        return f"{case.what}, {size} bytes: {got[:300]!r}"
    if took > FLOOR_S + size * PER_BYTE_S:
        return f"{case.what}, {size} bytes: {took:.2f} s of processor time"
    if grown > FLOOR_BYTES + size * BYTES_PER_BYTE:
        return f"{case.what}, {size} bytes: {grown / MIB:.0f} MiB"
    return None


@pytest.fixture(autouse=True, scope="module")
def only_own_garbage() -> Iterator[None]:
    """Objects of earlier tests are left out of collections: a whole collection of them takes 0.2 s of processor time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
async def audited(house: Any) -> Any:
    """A gateway that writes down who changed what, and whose engine forgets what it was asked."""
    house.rebuild(audit=lambda _entry: None)
    house.engine.seen = deque(maxlen=1)
    return house


DESCRIBED = describe(HANDLERS)
QUICK = ("POST /v1/chat/completions", "POST /v1/messages", "POST /api/use", "POST /api/chat", "GET /v1/models")
"""Routes of `make test`: one of each way through the gateway."""


@pytest.mark.parametrize(
    "route", [route for route in sorted(every_route()) if FULL or " ".join(route) in QUICK], ids=" ".join
)
@pytest.mark.timeout(120)
async def test_no_size_costs_more_than_itself(audited: Any, route: Route) -> None:
    """Neither time nor memory, and never a fault of ours; the gateway serves on."""
    wrong = []
    for case in (*heads(route), *(bodies(route) if route[0] == "POST" else ())):
        if why := await excess(audited, case):
            wrong.append(why)
        audited.app._deps.exclusive.taken = None
    assert not wrong, "\n".join(wrong)
    assert (await audited.client.get("/health")).status_code == 200


# --- parts that the routes above reach only with certain engines or settings ------------------------------------


def took(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_answers_to_many_tool_calls_find_them_at_once() -> None:
    """Ollama's calls have no ids: each answer belongs to the oldest call of its name."""
    body = {"model": "alpha", "messages": calls(20_000)}
    assert took(lambda: ollama_wire.parse_ollama_request(body, generate=False)) < 2
    ids = [turn["tool_call_id"] for turn in ollama_wire.parse_ollama_request(body, generate=False).body["messages"][1:]]
    assert ids == [f"call_0_{i}" for i in reversed(range(20_000))]


def test_an_answer_without_a_name_belongs_to_the_oldest_call() -> None:
    asked = [{"function": {"name": name, "arguments": {}}} for name in ("f", "g", "f")]
    told = [{"role": "tool", "content": "x", **({"tool_name": name} if name else {})} for name in ("g", None, "f", "f")]
    body = {"model": "alpha", "messages": [{"role": "assistant", "tool_calls": asked}, *told]}
    turns = ollama_wire.parse_ollama_request(body, generate=False).body["messages"][1:]
    assert [turn["tool_call_id"] for turn in turns] == ["call_0_1", "call_0_0", "call_0_2", "call_unknown"]


def test_many_system_turns_are_folded_in_one_pass() -> None:
    """An older vLLM gets them as text of the turn before."""
    turns = [{"role": "user", "content": "x"}, *({"role": "system", "content": "y"} for _ in range(100_000))]
    body = json.dumps({"model": "m", "messages": turns}).encode()
    target = prepare.CompatTarget(adapter(EngineKind.VLLM), (0, 22))
    rules = prepare.rules_for(Dialect.MESSAGES, (), target)
    assert took(lambda: prepare.apply_rules(body, rules, target)) < 2


@pytest.mark.parametrize("unit", ["-eyJ0123456789", "eyJ0123456789.", '"api_key" ', "Bearer ", "sk-", '\\"token\\" : '])
def test_secrets_are_looked_for_in_one_pass(unit: str) -> None:
    """A text that begins like a token again and again, and is none."""
    assert took(lambda: without_secrets(unit * (300_000 // len(unit)))) < 3


@pytest.mark.parametrize("depth", range(880, 1000, 7))
async def test_what_can_be_read_and_not_be_written_again_is_refused(house: Any, depth: int) -> None:
    """Python reads JSON a little deeper than it writes it, and where that ends depends on who calls."""
    deep = "[" * depth + "]" * depth
    call = f'{{"function": {{"name": "f", "arguments": {{"a": {deep}}}}}}}'
    for path, members in (
        ("/api/generate", f'"prompt": {deep}'),
        ("/api/generate", f'"prompt": "x", "images": [{deep}]'),
        ("/api/chat", f'"messages": [{{"content": "x"}}], "format": {{"a": {deep}}}'),
        ("/api/chat", f'"messages": [{{"content": "x", "tool_calls": [{call}]}}]'),
        ("/api/embed", f'"input": "x", "dimensions": {deep}'),
        ("/v1/responses", f'"max_tokens": 1, "input": {deep}'),
        ("/v1/messages", f'"system": [{{"text": "x-anthropic-billing-header"}}, {deep}]'),
    ):
        content = f'{{"model": "alpha", {members}}}'
        reply = await house.client.post(path, content=content, headers={"content-type": "application/json"})
        assert reply.status_code in (200, 400, 502), (path, reply.text)  # 502: the engine's answer is for another route


def test_base_urls_that_repeat_themselves_are_understood_in_one_pass() -> None:
    """`/v1/v1` is forgiven, however often."""
    assert took(lambda: find_route("/v1" * 20_000 + "/chat/completions")) < 1
    found = find_route("/v1" * 3 + "/chat/completions")
    assert found is not None
    assert found.path == "/v1/chat/completions"


# --- limits, in the words of the route --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/api/state", "/upstream/alpha/x", "/api/chat"]
)
async def test_a_large_head_is_refused_in_the_words_of_the_route(house: Any, path: str) -> None:
    """414 for a long address, 431 for many headers; both before anything is looked up."""
    many = {f"x-{number}": "y" for number in range(limits.HEADERS)}
    for reply, status, code in (
        (await house.client.post(f"{path}?q={'x' * limits.URL}", json={}), 414, "url_too_long"),
        (await house.client.post(path, json={}, headers=many), 431, "too_many_headers"),
    ):
        assert reply.status_code == status
        told = reply.json()
        assert told.get("type") == ("error" if path == "/v1/messages" else None)
        assert isinstance(told["error"], str) if path == "/api/chat" else told["error"]["code"] == code
    assert house.engine.seen == []


def test_the_page_tells_the_limits() -> None:
    """docs/api.md has the figures of `sparkdash.limits`."""
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text().partition("## Limits")[2]
    head, body = f"{limits.HEADERS}, and {limits.HEAD // 1024} KiB", f"{limits.CONTROL_BODY_MIB} MiB"
    for figure in (f"{limits.URL} characters", head, f"{limits.NAME} char", body, f"{limits.WORD} characters"):
        assert figure in page


async def test_a_control_request_has_a_small_body(house: Any) -> None:
    """Such a body names a profile; a larger one is not read, whatever is said of its length."""

    async def pieces() -> Any:
        for _ in range(64):
            yield b" " * 65536

    headers = {"content-type": "application/json"}
    for content in (b" " * (limits.CONTROL_BODY_MIB * MIB + 1), pieces()):
        reply = await house.client.post("/api/use", content=content, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("begin", "endless"), [(b"0\r\n", b"X-T: y\r\n"), (b"0\r\nX-T: ", b"y"), (b"1;", b"e"), (b"0\r\n", b"X")]
)
async def test_what_frames_a_body_has_an_end(house: Any, begin: bytes, endless: bytes) -> None:
    """Trailers, a trailer's value, a chunk's extensions: nobody would read them, and the memory for them would only grow."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, writer = await house.connect(head + begin)
    sent = 0
    with suppress(ConnectionError):
        while sent < 32 * MIB:
            writer.write(endless * (65536 // len(endless)))
            await writer.drain()
            sent += 65536
    assert sent < 32 * MIB
    writer.transport.abort()


async def test_a_long_path_makes_no_long_row(house: Any) -> None:
    await house.client.post("/v1/" + "x" * 5000, json={"model": "alpha"})
    assert len((await house.ended()).route) <= limits.SHOWN + 1


@pytest.mark.parametrize("holder", ["x" * 5000, "\x1b]0;title\x07", "a\nb", "\u009b31m"])
async def test_a_holders_name_is_a_short_word_that_can_be_shown(house: Any, holder: str) -> None:
    """The name stands on every screen while others wait."""
    reply = await house.client.post("/api/lease", json={"holder": holder})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    where = {"run": "r", "doing": "m", "arm": holder, "launch": 1, "launches": 1, "done": 0, "cells": 1, "share": 0}
    reply = await house.client.post("/api/lease", json={"holder": "h", "measuring": where})
    assert (reply.status_code, house.bus.snapshot.measuring) == (400, None)
