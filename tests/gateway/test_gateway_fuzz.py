"""Nonsense on the public routes: never a 500 of our own, never a hang, and the gateway serves on."""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparkdash.settings import Settings
from sparkdash.wire import connection

POSTS = [
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/v1/embeddings", "/v1/rerank", "/v1/audio/speech", "/tokenize", "/infill",
    "/upstream/alpha/v1/chat/completions", "/api/chat", "/api/generate", "/api/show", "/api/use", "/api/stop", "/api/toggle",
    "/api/lease", "/api/pull-image", "/api/release", "/api/extend-load", "/api/requests/x/cancel", "/api/bench/end",
]  # fmt: skip
KEYS = [
    "model", "name", "stream", "stream_options", "messages", "prompt", "input", "system", "tools", "options", "format",
    "think", "images", "suffix", "raw", "context", "keep_alive", "service_tier", "max_tokens", "profile", "holder",
    "token", "a", "b", "flip", "expected_s", "measuring",
]  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 10**40, 1e308, "", "x", "\ud800", "../..", "a" * 5000, [], [[]], [None], [{}], {}, {"": None}, {"content": [{"type": 5}]},
    [{"role": 5, "content": {}, "tool_calls": [{"function": {"name": 5}}]}], [{"role": "tool", "tool_call_id": {}}], {"include_usage": 5},
]  # fmt: skip
RAW = [
    b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}{}", b'{"model":NaN}', b'{"model":"alpha","model":5}',
    b'{"a":' * 20000, b"[" * 100000 + b"]" * 100000, b'{"model":"alpha","stream":tru', b'{"model":"\\ud800"}', b'{"model":"' + b"a" * 300000 + b'"}',
    b"\x00" * 100, b'{"model":"alpha",}', b"model=alpha",
]  # fmt: skip
TYPES = ["application/json", "text/plain", "multipart/form-data", "multipart/form-data; boundary=x", "\xff/\xfe", ""]


def bodies() -> Iterator[bytes]:
    """Every odd value under every key, with a model that exists and without."""
    for value in ODD:
        yield json.dumps(dict.fromkeys(KEYS, value)).encode()
        yield json.dumps({**dict.fromkeys(KEYS, value), "model": "alpha", "stream": value is True}).encode()
    yield from RAW


@pytest.mark.parametrize("path", POSTS)
async def test_odd_bodies_are_answered(house: Any, path: str) -> None:
    """With what the engine says, or a refusal in words; a 5xx of ours would be a mistake of ours."""
    for number, body in enumerate(bodies()):
        kind = TYPES[number % len(TYPES)] if number % 3 == 0 else TYPES[0]
        reply = await house.client.post(path, content=body, headers={"content-type": kind.encode("latin-1")})
        assert reply.status_code < 500, (body[:200], reply.text)
        if reply.status_code >= 400:
            error = reply.json()["error"]
            assert isinstance(error if path in ("/api/chat", "/api/generate", "/api/show") else error["message"], str)
    assert (await house.chat()).status_code == 200


LINES = [
    b"GET /health HTTP/1.1", b"POST /v1/chat/completions HTTP/1.1", b"GET /v1/models HTTP/1.1", b"OPTIONS * HTTP/1.1",
    b"GET http://localhost/v1/models HTTP/1.1", b"CONNECT localhost:1 HTTP/1.1", b"GET /%zz%00%ff/../ HTTP/1.1",
    b"POST /upstream/alpha/%00 HTTP/1.1", b"GET /v1/models/%c3%28 HTTP/1.1", b"GET  HTTP/1.1", b"PRI * HTTP/2.0",
    b"GET /v1/models?model=%ff&&=& HTTP/1.0", b"\x16\x03\x01\x02\x00\x01", b"DELETE /api/lease HTTP/1.1",
    b"GET /props?model=%ff HTTP/1.1", b"HEAD /api/tags HTTP/1.1", b"GET /" + b"a" * 70000 + b" HTTP/1.1",
]  # fmt: skip
HEADS = [
    b"Host: localhost", b"Host: evil.example", b"Host: [::1", b"Host: localhost:99999999", b"Content-Length: 5", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Content-Length: x", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Connection: close", b"Connection: upgrade, close", b"Upgrade: websocket", b"Expect: 100-continue", b"Content-Encoding: gzip",
    b"Content-Type: application/json", b"Content-Type: multipart/form-data", b"X-Sparkdash-Priority: \xff", b"X-Sparkdash-Lease: \xff\x80",
    b"Authorization: Bearer \xff", b"Origin: http://[", b"Origin: null", b" folded: x", b"no colon", b": empty", b"\x00: x", b"Last-Event-ID: 9e9",
    b"X-Long: " + b"x" * 20000,
]  # fmt: skip
TAILS = [
    b"", b"hello", b'{"model":"alpha"}', b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\nhello\r\n", b"ffffffffffffffffff\r\n", b"5\r\nhel",
    b"-1\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3, b"\xff" * 1000,
]  # fmt: skip


def message(dice: random.Random) -> bytes:
    """Something like a request: parts of good and bad ones, now and then cut or with a byte changed."""
    heads = dice.sample(HEADS, dice.randint(0, 5))
    end = dice.choice([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
    made = end.join([dice.choice(LINES), *heads, b"", b""]) + dice.choice(TAILS)
    if dice.random() < 0.2:
        made = made[: dice.randrange(len(made) + 1)]
    if made and dice.random() < 0.2:
        at = dice.randrange(len(made))
        made = made[:at] + bytes([dice.randrange(256)]) + made[at + 1 :]
    return made


async def said_to(house: Any, sent: bytes) -> bytes:
    """All that the gateway answers until it closes, which it must."""
    reader, writer = await house.connect(sent)
    got = b""
    try:
        with suppress(ConnectionError):
            await writer.drain()
            while piece := await asyncio.wait_for(reader.read(65536), 60):
                got += piece
    finally:
        writer.transport.abort()
    return got


@pytest.mark.parametrize("seed", range(4))
async def test_malformed_http_ends(house: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Every connection is answered or closed; none of the answers is a 500. Others are served as ever after."""
    dice = random.Random(seed)
    with monkeypatch.context() as short:
        short.setattr(connection, "HEAD_S", 0.3)
        short.setattr(house.server.state, "keep_alive_s", 0.3)
        short.setitem(vars(settings), "body_s", 0.3)  # they are frozen for everybody else
        for _ in range(3):
            sent = [message(dice) for _ in range(25)]
            for asked, got in zip(sent, await asyncio.gather(*(said_to(house, one) for one in sent)), strict=True):
                assert not got or got.startswith(b"HTTP/1.1 "), asked
                assert b"HTTP/1.1 500" not in got, asked
    assert (await house.client.get("/health")).status_code == 200
    assert (await house.chat()).status_code == 200
