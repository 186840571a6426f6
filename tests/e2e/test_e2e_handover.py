"""Restarts in which nobody is refused: the sockets stay open with systemd, or with whoever started the daemon."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from daemons import ready_engines

from sparkdash.daemon import listeners

pytestmark = pytest.mark.timeout(240)

PROGRAM = Path(__file__).with_name("handed_daemon.py")
PROFILE = "profile: quick\nengine: sim\nsim: {load_s: 0.1, memory_gib: 0.1, time_scale: 50}\n"
CHAT = json.dumps({"model": "quick", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]})
CLIENTS = 4


class Systemd:
    """A stand-in for a service manager: hears sd_notify's datagrams and keeps the descriptors that come with FDSTORE."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self._held = held
        self._heard = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._heard.bind(str(folder / "notify"))
        self._heard.settimeout(60)
        self.store: dict[str, socket.socket] = {}

    def start(self, daemon: Any, given: dict[str, socket.socket]) -> subprocess.Popen[str]:
        """Start a daemon with these sockets; it need not come up."""
        descriptors = [sock.fileno() for sock in given.values()]
        env = {**daemon.env, "NOTIFY_SOCKET": self._heard.getsockname(), "HANDED_NAMES": ":".join(given)}
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, descriptors)],
            env=env, pass_fds=descriptors, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._held.callback(_ended, process)
        return process

    def until_ready(self) -> list[str]:
        """Keep what is to be kept, until READY; everything that was said."""
        said = []
        while not said or not said[-1].startswith("READY=1"):
            words, descriptors, _, _ = socket.recv_fds(self._heard, 4096, 4)
            said.append(words.decode())
            for descriptor in descriptors:
                self.store[said[-1].partition("FDNAME=")[2]] = self._held.enter_context(
                    socket.socket(fileno=descriptor)
                )
        return said


def _ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """A service manager whose daemons end with the test."""
    with ExitStack() as held:
        yield Systemd(tmp_path, held)


@pytest.fixture
def box(new_daemon: Callable[..., Any], unused_tcp_port: int) -> Any:
    """A daemon's folders with one quick simulated profile and a port; not started."""
    daemon = new_daemon(runtime="process", port=unused_tcp_port)
    daemon.env.pop("SPARKDASH_PORT", None)
    daemon.write("quick", PROFILE)
    daemon.url = f"http://127.0.0.1:{unused_tcp_port}"
    return daemon


def _asks(port: int, over: Event) -> list[bytes | None]:
    """The refusal, or None, of requests one after another on a kept connection, until `over`."""
    refusals = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=100)) as connection:
        while not over.is_set():
            connection.request("POST", "/v1/chat/completions", CHAT, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                body = answer.read()
            refusals.append(None if answer.status == 200 else body)
    return refusals


def test_clients_that_keep_asking_are_all_answered_over_two_restarts(box: Any, systemd: Systemd) -> None:
    port, over = int(box.url.rpartition(":")[2]), Event()
    process = systemd.start(box, {})
    systemd.until_ready()
    assert set(systemd.store) == {listeners.TCP, listeners.UNIX}
    box.post("/api/use", {"profile": "quick"})
    box.until(lambda state: "quick" in ready_engines(state))
    with ThreadPoolExecutor(CLIENTS) as pool, ExitStack() as ends:
        ends.callback(over.set)  # also where something failed: the pool waits for its clients
        asking = [pool.submit(_asks, port, over) for _ in range(CLIENTS)]
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            process = systemd.start(box, dict(systemd.store))
            said = systemd.until_ready()
            assert not any("FDSTORE=1" in words for words in said)
        assert box.sparkdash("status").returncode == 0  # through the unix socket, which was kept too
        over.set()
        refusals = {refusal for each in asking for refusal in each.result()}
    assert refusals == {None}
    box.post("/api/stop", {"profile": None})


def test_a_stored_socket_of_another_port_is_dropped(box: Any, systemd: Systemd) -> None:
    """The port was edited: the daemon listens where the settings say, and systemd forgets the old socket."""
    with socket.create_server(("127.0.0.1", 0)) as old:
        systemd.start(box, {listeners.TCP: old})
        said = systemd.until_ready()
    assert f"FDSTOREREMOVE=1\nFDNAME={listeners.TCP}" in said
    assert box.get("/health")
    assert systemd.store[listeners.TCP].getsockname() == ("127.0.0.1", int(box.url.rpartition(":")[2]))


def test_a_socket_unit_that_listens_elsewhere_is_told(box: Any, systemd: Systemd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = systemd.start(box, {"sparkdash.socket": other})
        _, said = process.communicate(timeout=60)
        where = f"127.0.0.1:{other.getsockname()[1]}"
    assert process.returncode != 0
    assert f"The socket unit sparkdash.socket listens on {where}" in said
    assert "Traceback" not in said


def test_sockets_meant_for_another_process_are_left_alone() -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "x", "HOME": "/"}
    found = listeners.inherited_sockets(listeners.Notifier(), environ)
    assert (found.inherited, found.outlives, environ) == ((), False, {"HOME": "/"})
