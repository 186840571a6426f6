"""The one-shot commands' own connection: opened anew when it must be, over TLS, and left in the middle."""

import asyncio
import json
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from fake_daemon import FakeDaemon

from sparkdash import listen
from sparkdash.api.requests import NoParameters
from sparkdash.api.rows import DocumentCall
from sparkdash.client.client import AsyncClient, Client
from sparkdash.client.trial import attempt
from sparkdash.errors import DaemonError
from sparkdash.wire import RequestChannel, ResponseHeaders

TLS = Path(__file__).parents[1] / "data" / "tls"
ANY = DocumentCall("GET", "/health", NoParameters, bytes, "")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


@contextmanager
def scripted(*scripts: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server each of whose connections, one after the other, is a script's; its URL."""

    def serve() -> None:
        for script in scripts:
            connection, _ = server.accept()
            with connection:
                script(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_connection_serves_several_calls_and_is_opened_again_once_closed() -> None:
    """A daemon ends idle connections; nobody hears of it. A path in the URL is used."""
    asked: list[bytes] = []

    def serve(connection: socket.socket, calls: int) -> None:
        for _ in range(calls):
            asked.append(connection.recv(65536))
            connection.sendall(HEAD + b"{}")

    with scripted(partial(serve, calls=2), partial(serve, calls=1)) as url, Client(f"{url}/spark") as client:
        for _ in range(2):
            assert client.call(ANY) == b"{}"
        assert select.select([client._connection._connection.sock], [], [], 60)[0]  # the end of the connection has come
        assert client.call(DocumentCall("GET", "/b", NoParameters, bytes, "")) == b"{}"
    assert [head.split()[1] for head in asked] == [b"/spark/health", b"/spark/health", b"/spark/b"]


def test_one_that_says_nothing_is_silent() -> None:
    over = threading.Event()
    with scripted(lambda connection: over.wait(60) and None) as url, Client(url) as client:
        with pytest.raises(DaemonError, match="did not answer in time") as caught:
            client.call(DocumentCall("GET", "/health", NoParameters, bytes, "", silence_s=0.05))
        over.set()
    assert caught.value.code == "daemon_silent"


@pytest.mark.parametrize(
    "answer",
    [b"", HEAD + b"{", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", b"no http\r\n\r\n"],
    ids=["nothing", "short", "chunk", "rubbish"],
)
def test_an_answer_that_breaks_off_is_told(answer: bytes) -> None:
    def cut(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with scripted(cut) as url, Client(url) as client, pytest.raises(DaemonError) as caught:
        client.call(ANY)
    assert caught.value.code == "daemon_hung_up"


def test_a_stream_that_is_left_does_not_disturb_the_next_call(daemon: FakeDaemon) -> None:
    with Client(daemon.url) as client:
        lines = client.logs(name="a")
        assert next(lines) == "first line"
        lines.close()
        assert client.health()


@pytest.fixture
async def secured(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, list[str]]]:
    """A server on https, untrusted so far, that answers a chat with one word and every other call with an empty object.

    Its URL, and the keys it was shown.
    """
    keys: list[str] = []

    async def serve(own: RequestChannel) -> None:
        keys.append(own.head.named.get(b"authorization", b"").decode())
        chunk = {"choices": [{"index": 0, "delta": {"content": own.head.listener[1]}}]}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n" if own.head.path.startswith("/v1") else "{}"
        own.start(200, ResponseHeaders([]))
        own.finish(body.encode())

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    tls = listen.Tls(TLS / "cert.pem", TLS / "key.pem")
    server, sock = listen.Server(serve, tls), listen.bind_tcp("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    yield listen.root_url(sock, tls), keys
    server.stop()
    await serving


async def test_over_https_with_a_key(secured: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients refuse a certificate that is not trusted before they send the key."""
    url, keys = secured
    monkeypatch.setenv("SPARKDASH_KEY", "sk-3")

    def ask() -> None:
        with Client(url) as client:
            client.cancel()

    async def ask_asynchronously() -> None:
        async with AsyncClient(url) as client:
            await client.cancel()

    for asked in (asyncio.to_thread(ask), ask_asynchronously()):
        with pytest.raises(DaemonError, match="is not trusted") as caught:
            await asked
        assert (caught.value.code, keys) == ("daemon_untrusted", [])
        assert "SSL_CERT_FILE" in (caught.value.hint or "")
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    await asyncio.to_thread(ask)
    trial = await asyncio.to_thread(attempt, url, "sk-1", "chat", "alpha")
    assert (trial.text, keys) == ("https", ["Bearer sk-3", "Bearer sk-1"])
