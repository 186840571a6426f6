"""Uploads: forms of audio and pictures, with the model's name behind the file, through real client libraries."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httpx
import openai
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from scripted import answering
from serving import aiohttp_server

from sparkdash.domain.request import RequestState
from sparkdash.gateway.protocol.peek import form_boundary, form_fields, peek_body
from sparkdash.gateway.protocol.prepare import rename_model
from sparkdash.settings import Settings
from sparkdash.units import MIB

PATH = "/v1/audio/transcriptions"
LIMIT_S = 30.0
SOUND = bytes(range(256)) * (5 * MIB // 256)
HEAD = (
    f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b0\r\n"
    "Content-Length: %d\r\n\r\n"
).encode()


@dataclass
class Heard:
    """Upload as an engine got it: fields, and the size and digest of each file."""

    forms: list[dict[str, Any]] = field(default_factory=list)
    lengths: list[int | None] = field(default_factory=list)


@asynccontextmanager
async def transcriber(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None,
) -> AsyncIterator[tuple[str, Heard]]:
    """A server that reads forms as they come."""
    heard = Heard()

    async def serve(request: web.Request) -> web.StreamResponse:
        if answer is not None and (given := await answer(request)) is not None:
            return given
        found: dict[str, Any] = {}
        heard.lengths.append(request.content_length)
        async for part in await request.multipart():
            assert isinstance(part, aiohttp.BodyPartReader)
            if part.filename:
                digest, size = hashlib.sha256(), 0
                while piece := await part.read_chunk(65536):
                    digest.update(piece)
                    size += len(piece)
                found[part.name or ""] = (size, digest.hexdigest())
            else:
                found[part.name or ""] = await part.text()
        heard.forms.append(found)
        return web.json_response({"text": "hello"})

    app = web.Application(client_max_size=2**40)
    app.router.add_post("/{path:.*}", serve)
    async with aiohttp_server(app) as url:
        yield url, heard


async def until(holds: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


def digested(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


def form_of(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    found = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {name}\r\n\r\n".encode() + value + b"\r\n"
        for name, value in parts
    )
    return found + f"--{boundary}--\r\n".encode()


FILE = 'name="file"; filename="a.wav"'


async def posted(house: Any, body: bytes, boundary: str = "b0", path: str = PATH) -> httpx.Response:
    headers = {"content-type": f'multipart/form-data; boundary="{boundary}"'}
    return await house.client.post(path, content=body, headers=headers)  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", [PATH, "/v1/audio/translations", "/v1/images/edits"])
async def test_a_name_behind_a_large_file_becomes_the_engines_own(house: Any, path: str) -> None:
    house.supervisor.names = ("engine/own-name",)
    async with transcriber() as (url, heard):
        house.supervisor.url = url
        body = form_of("b0", (FILE, SOUND), ('name="model"', b"alpha"), ('name="language"', b"de"))
        reply = await posted(house, body, path=path)
        assert (reply.status_code, reply.json()) == (200, {"text": "hello"})
    assert heard.forms == [{"file": digested(SOUND), "model": "engine/own-name", "language": "de"}]
    assert heard.lengths == [len(body) + len("engine/own-name") - len("alpha")]
    assert house.supervisor.leases == ["alpha"]
    assert house.app._deps.body_budget.taken == 0
    assert (await house.ended()).state is RequestState.DONE


async def test_openais_client_uploads_sound(house: Any) -> None:
    """The SDK chooses its own boundary and order of parts."""
    async with transcriber() as (url, heard):
        house.supervisor.url = url
        async with openai.AsyncOpenAI(base_url=f"{house.base}/v1", api_key="x") as client:
            found = await client.audio.transcriptions.create(model="alpha", file=("a.wav", SOUND))
    assert found.text == "hello"
    assert heard.forms[0]["file"] == digested(SOUND)
    assert heard.forms[0]["model"] == "alpha"


async def test_a_chunked_form_is_relayed_too(house: Any) -> None:
    """Without a Content-Length, as aiohttp sends an iterator."""

    async def pieces() -> AsyncIterator[bytes]:
        body = form_of("b0", (FILE, SOUND), ('name="model"', b"coder"))
        for at in range(0, len(body), 10_007):
            yield body[at : at + 10_007]

    async with transcriber() as (url, heard), aiohttp.ClientSession() as session:
        house.supervisor.url = url
        headers = {"Content-Type": "multipart/form-data; boundary=b0"}
        async with session.post(house.base + PATH, data=pieces(), headers=headers) as reply:
            assert reply.status == 200
    assert heard.forms == [{"file": digested(SOUND), "model": "coder"}]


async def test_an_upload_is_sent_again_after_an_engine_died(house: Any) -> None:
    died = []

    async def die_once(request: web.Request) -> web.Response | None:
        if died:
            return None
        died.append(await request.content.readexactly(2 * MIB))
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError

    async with transcriber(die_once) as (url, heard):
        house.supervisor.url = url
        reply = await posted(house, form_of("b0", (FILE, SOUND), ('name="model"', b"alpha")))
        assert reply.status_code == 200
    assert (len(died), heard.forms) == (1, [{"file": digested(SOUND), "model": "alpha"}])


async def test_an_engine_may_refuse_before_the_end(house: Any) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "too long", "code": "too_long"}}, status=413)

    async with transcriber(refuse) as (url, _):
        house.supervisor.url = url
        reply = await posted(house, form_of("b0", (FILE, SOUND), ('name="model"', b"alpha")))
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_long")
    await house.supervisor.all_left()
    assert house.app._deps.body_budget.taken == 0


async def test_a_client_that_goes_away_leaves_nothing(house: Any) -> None:
    _, writer = await house.connect(HEAD % 99_999_999 + form_of("b0", (FILE, SOUND))[: 3 * MIB])
    await writer.drain()
    await until(lambda: house.app._deps.body_budget.taken > 0)
    writer.transport.abort()
    await until(lambda: house.app._deps.body_budget.taken == 0)
    assert house.supervisor.leases == []


async def test_a_content_length_that_is_too_short_cuts_the_form(house: Any) -> None:
    """The rest is no request; the engine gets no more than was announced, and no model is found."""
    form = form_of("b0", (FILE, b"x" * 1000), ('name="model"', b"alpha"))
    reader, writer = await house.connect(HEAD % 500 + form)
    answer = await asyncio.wait_for(reader.read(), LIMIT_S)
    assert answer.startswith(b"HTTP/1.1 400 ")
    writer.close()
    assert house.supervisor.leases == []


class TestLimits:
    """Each refused with its figure, before or while the form comes."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(upload_limit_mib=6)

    async def test_a_thousand_times_too_large_is_refused_by_its_length(self, house: Any) -> None:
        reader, writer = await house.connect(HEAD % (25 * 1024 * MIB))
        answer = await asyncio.wait_for(reader.readuntil(b"}}"), LIMIT_S)
        assert b" 413 " in answer
        assert b"upload_limit_mib" in answer
        writer.close()

    async def test_a_form_without_a_length_is_cut_off_at_the_limit(self, house: Any) -> None:
        async def endless() -> AsyncIterator[bytes]:
            yield form_of("b0", (FILE, b""))[:-10]
            while True:
                yield b"\0" * MIB

        async with aiohttp.ClientSession() as session:
            headers = {"Content-Type": "multipart/form-data; boundary=b0"}
            try:
                async with session.post(house.base + PATH, data=endless(), headers=headers) as reply:
                    assert reply.status == 413
            except aiohttp.ClientConnectionError:  # the connection is closed while it still sends
                pass
        await until(lambda: house.app._deps.body_budget.taken == 0)
        assert house.supervisor.leases == []


@pytest.mark.parametrize(("content_type", "boundary"), [
    ("multipart/form-data; boundary=abc", "abc"), ('multipart/form-data; boundary="abc"', "abc"),
    ('Multipart/Form-Data; charset="a;boundary=no"; BOUNDARY = "a b;c=\\"d"', 'a b;c="d'),
    ("multipart/form-data;boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "----WebKitFormBoundary7MA4YWxkTrZu0gW"),
    ("multipart/form-data; boundary='()+_,-./:=?'", "'()+_,-./:=?'"),
    ("multipart/form-data; boundary=" + "b" * 70, "b" * 70),
])  # fmt: skip
async def test_every_legal_boundary_is_read(house: Any, content_type: str, boundary: str) -> None:
    assert form_boundary(content_type) == boundary.encode()
    body = form_of(boundary, (FILE, b"x"), ('name="model"', b"beta/fast"))
    reply = await house.client.post(PATH, content=body, headers={"content-type": content_type})
    assert house.supervisor.leases == ["beta/fast"], reply.text


@pytest.mark.parametrize("content_type", ["multipart/form-data", 'multipart/form-data; boundary=""'])
async def test_a_form_without_a_boundary_is_refused(house: Any, content_type: str) -> None:
    reply = await house.client.post(PATH, content=b"x", headers={"content-type": content_type})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_form")


def test_the_name_of_a_form_is_replaced_where_it_stands() -> None:
    """Behind a file whose content looks like the field."""
    fields = (FILE, b'x\r\n\r\nContent-Disposition: form-data; name="model"\r\n\r\nno'), ('name="model"', b"whisper")
    body = form_of("b0", *fields, ('name="stream"', b"true"))
    asked = peek_body(body, 'multipart/form-data; boundary="b0"')
    assert (asked.model, asked.stream) == ("whisper", True)
    assert asked.model_span is not None
    assert rename_model(body, asked.model_span, "w2") == body.replace(b"\r\nwhisper\r\n", b"\r\nw2\r\n")


@pytest.mark.parametrize(
    ("body", "model"),
    [
        *((rubbish, None) for rubbish in (b"", b"--b", b"--b\r\nno headers end", b"--b--\r\n", b"rubbish" * 1000)),
        (form_of("b", (FILE, b"\r\n--bx\r\n--b y\r\n"), ('name="model"', b"m")), "m"),
        (form_of("b", ('name="model"', b"m"), ('name="model"', b"n"))[:-2], "n"),
        (form_of("b", ('name="model"', b"m"), ('name="model"', b"n"))[:-4], "m"),
        (b'preamble\r\n--b \t\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--epilogue', "m"),
        (b"--b\r\n" + b"x" * 9000 + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n', None),
    ],
)
def test_a_form_is_read_as_far_as_it_is_whole(body: bytes, model: str | None) -> None:
    assert form_fields(body, b"b")[0].get("model") == model


@given(st.lists(st.tuples(st.sampled_from(["model", "file"]), st.text("ab-\r\n", max_size=9)), max_size=4))
def test_the_last_model_of_a_form_counts(fields: list[tuple[str, str]]) -> None:
    body = form_of("b0", *[(f'name="{name}"', value.encode()) for name, value in fields])
    found, span = form_fields(body, b"b0")
    models = [value for name, value in fields if name == "model"]
    assert found.get("model") == (models[-1] if models else None)
    assert span is None or body[slice(*span)].decode() == models[-1]


async def test_sound_comes_back_byte_by_byte_the_same(house: Any) -> None:
    house.engine.script = answering(SOUND, content_type="audio/wav")
    reply = await house.client.post("/v1/audio/speech", json={"model": "alpha", "input": "hi", "voice": "a"})
    assert (reply.content, reply.headers["content-type"]) == (SOUND, "audio/wav")
    row = await house.ended()
    assert (row.state, row.completion_tokens, row.decode_tok_s) == (RequestState.DONE, None, None)
