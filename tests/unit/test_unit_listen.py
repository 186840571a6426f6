"""Sockets, and the one-daemon rule."""

import asyncio
import errno
import os
import shutil
import socket
import ssl
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest

from sparkdash import listen
from sparkdash.errors import DaemonError, HostError
from sparkdash.wire import RequestChannel, ResponseHeaders


def test_a_port_that_is_taken_is_named_with_the_way_out() -> None:
    first = listen.bind_tcp("127.0.0.1", 0)
    port = first.getsockname()[1]
    with first, pytest.raises(HostError) as caught:
        listen.bind_tcp("127.0.0.1", port)
    assert caught.value.code == "port_in_use"
    assert str(port) in caught.value.message
    assert "--port" in (caught.value.hint or "")


async def test_small_pieces_leave_at_once() -> None:
    """On asyncio's own loop too: without TCP_NODELAY a client waits 40 ms for the second piece of an answer."""
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    door = listen.bind_tcp("127.0.0.1", 0)
    async with await asyncio.start_server(connected, sock=door):
        _, writer = await asyncio.open_connection(*door.getsockname())
        assert await accepted == 1
        writer.close()


def test_a_second_daemon_is_told_of_the_first(tmp_path: Path) -> None:
    with listen.hold_daemon_lock(tmp_path) as name:
        name("pid 7, http://127.0.0.1:8484")
        with pytest.raises(DaemonError, match="pid 7"), listen.hold_daemon_lock(tmp_path):
            pytest.fail("two daemons held one lock")
    with listen.hold_daemon_lock(tmp_path):
        assert (tmp_path / "daemon.lock").read_text() == ""


def test_a_lock_on_a_full_disk_holds_and_names_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon of a box whose disk is full must be able to begin."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with listen.hold_daemon_lock(tmp_path) as name:
        name("pid 7, http://127.0.0.1:8484")
        with pytest.raises(DaemonError, match="its lock is held"), listen.hold_daemon_lock(tmp_path):
            pytest.fail("two daemons held one lock")


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_the_address_is_one_that_clients_can_use(host: str, shown: str) -> None:
    with listen.bind_tcp(host, 0) as sock:
        assert listen.root_url(sock) == f"http://{shown}:{sock.getsockname()[1]}"


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """The system's limit of 107 bytes for a socket, a file where the folder should be: the variable names another place."""
    folder = tmp_path / ("x" * 110)
    folder.mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="too long") as long:
        listen.bind_unix(folder / listen.SOCKET_NAME)
    with pytest.raises(HostError) as unmade, listen.hold_daemon_lock(tmp_path / "file" / "run"):
        pytest.fail("there was no folder to lock")
    for caught in (long, unmade):
        assert "SPARKDASH_RUNTIME_DIR" in (caught.value.hint or "")


TLS = Path(__file__).parents[1] / "data" / "tls"
"""A certificate for localhost that signed itself, made for these tests."""


async def _hello(own: RequestChannel) -> None:
    own.start(200, ResponseHeaders([]))
    own.finish(own.head.listener[1].encode())


async def test_the_port_speaks_https_and_the_socket_does_not(tmp_path: Path) -> None:
    """Keys and prompts cross a network in cipher; on the box's own socket nobody is in between."""
    tls = listen.Tls(TLS / "cert.pem", TLS / "key.pem")
    server, tcp = listen.Server(_hello, tls), listen.bind_tcp("127.0.0.1", 0)
    url = listen.root_url(tcp, tls)
    unix = listen.bind_unix(tmp_path / listen.SOCKET_NAME)
    assert stat.S_IMODE((tmp_path / listen.SOCKET_NAME).stat().st_mode) == 0o600, "who opens it controls the daemon"
    serving = asyncio.create_task(server.serve(sockets=[tcp, unix]))
    by_socket = httpx.AsyncHTTPTransport(uds=str(tmp_path / listen.SOCKET_NAME), verify=False)
    trusted = ssl.create_default_context(cafile=tls.cert)
    async with (
        httpx.AsyncClient(transport=by_socket, timeout=60) as near,
        httpx.AsyncClient(verify=trusted, timeout=60) as far,
    ):
        assert (await near.get("http://localhost/")).text == "http"
        assert (await far.get(url.replace("127.0.0.1", "localhost"))).text == "https"
        with pytest.raises(httpx.TransportError):
            await far.get(url.replace("https", "http"))
    server.stop()
    await serving


@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int, refused: bool) -> None:
    """A group may, as Debian's ssl-cert does; nobody else. The fix is one command."""
    key = tmp_path / "key.pem"
    shutil.copy(TLS / "key.pem", key)
    key.chmod(mode)
    with pytest.raises(HostError) if refused else nullcontext() as caught:
        listen.Tls(TLS / "cert.pem", key).check()
    if caught is not None:
        assert (caught.value.code, caught.value.hint) == ("tls_key_open", f"chmod 600 {key}")


def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("nonsense")
    for cert, key in ((tmp_path / "no.pem", TLS / "key.pem"), (TLS / "cert.pem", tmp_path / "key.pem")):
        with pytest.raises(HostError, match="cannot serve https") as caught:
            listen.Tls(cert, key).check()
        assert "nonsense" not in caught.value.text()
