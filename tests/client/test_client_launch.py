"""Starting the daemon in the background."""

import fcntl
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from fake_daemon import FakeDaemon

from sparkdash import paths
from sparkdash.client import connection, launch
from sparkdash.client.client import Client
from sparkdash.errors import DaemonError

SERVES = """
import http.server, os, sys
class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(os.environ["SPARKDASH_PORT"])), Door)
print("serving", os.getsid(0) == os.getpid(), flush=True)
server.handle_request()
sys.stdin.read()
server.serve_forever()
"""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> int:
    monkeypatch.setenv("SPARKDASH_PORT", str(unused_tcp_port))
    return unused_tcp_port


def test_a_daemon_that_serves_is_left_alone(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDASH_URL", daemon.url)
    assert launch.ensure_daemon(command=["false"]) is None
    assert not paths.daemon_log().exists()


@pytest.mark.usefixtures("port")
def test_it_is_started_in_a_session_of_its_own() -> None:
    process = launch.ensure_daemon(command=[sys.executable, "-c", SERVES])
    assert process is not None
    assert process.poll() is None
    assert paths.daemon_log().read_text() == "serving True\n"
    process.kill()
    process.wait()


@pytest.mark.usefixtures("port")
def test_one_that_dies_tells_its_last_words() -> None:
    paths.daemon_log().write_text("from an earlier run\n")
    with pytest.raises(launch.DaemonStartError, match="ended at once, with status 3") as caught:
        launch.ensure_daemon(command=["sh", "-c", "echo port in use >&2; exit 3"])
    assert caught.value.log_tail == ("port in use",)
    assert str(paths.daemon_log()) in str(caught.value.hint)
    assert (caught.value.code, caught.value.exit_code) == ("daemon_not_started", 7)


@pytest.mark.usefixtures("port")
def test_one_that_never_serves_is_ended() -> None:
    others = set(psutil.Process().children())
    with pytest.raises(launch.DaemonStartError, match="did not serve within"):
        launch.ensure_daemon(command=["sleep", "60"], deadline_s=0)
    assert set(psutil.Process().children()) <= others


def test_where_the_owner_named_an_address_nothing_is_started(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """SPARKDASH_URL may be another box: a daemon here would not be the one that was meant."""
    monkeypatch.setenv("SPARKDASH_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(DaemonError, match="No sparkdash daemon answers"):
        launch.ensure_daemon(command=["false"])
    assert not paths.daemon_log().exists()


def test_a_long_log_is_moved_aside(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(launch, "LOG_LIMIT", 10)
    paths.daemon_log().write_text("more than ten bytes\n")
    with pytest.raises(launch.DaemonStartError):
        launch.ensure_daemon(command=["sh", "-c", "echo new; exit 1"])
    assert paths.daemon_log().read_text() == "new\n"
    assert paths.daemon_log().with_suffix(".log.old").read_text() == "more than ten bytes\n"


@pytest.mark.usefixtures("port")
@pytest.mark.parametrize(
    "why", ["it is a device, and not a file", "it is a named pipe, and not a file", "Not a directory"]
)
def test_a_log_that_is_no_file_is_named_and_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Opening a pipe waited for a reader, and the last lines of /dev/zero were read until memory ended."""
    if "device" in why:
        paths.daemon_log().symlink_to("/dev/zero")
    elif "pipe" in why:
        os.mkfifo(paths.daemon_log())
    else:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "file" / "state"))
    with pytest.raises(DaemonError, match=rf"daemon\.log cannot be written: {why}") as caught:
        launch.ensure_daemon(command=["false"])
    assert "directory" not in why or "SPARKDASH_STATE_DIR" in (caught.value.hint or "")


def test_the_end_is_when_the_lock_is_free() -> None:
    with Client() as client, (paths.runtime_dir() / launch.LOCK_NAME).open("a") as held:
        launch.wait_ended(client, deadline_s=0)
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DaemonError, match="has not ended") as caught:
            launch.wait_ended(client, deadline_s=0)
        threading.Timer(0.1, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        launch.wait_ended(client, deadline_s=20)
        assert not client.health()
    assert caught.value.code == "daemon_lingers"


@pytest.mark.usefixtures("port")
def test_beside_a_daemon_that_does_not_answer_no_other_is_started() -> None:
    """The other one holds the lock: it begins, and is waited for, or it hangs, and says so."""
    with (paths.runtime_dir() / launch.LOCK_NAME).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DaemonError, match="No sparkdash daemon answers"):
            launch.ensure_daemon(command=["false"], deadline_s=0)
        assert not paths.daemon_log().exists()
        threading.Timer(0.1, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        with pytest.raises(launch.DaemonStartError):  # it ended: now another may be started
            launch.ensure_daemon(command=["false"], deadline_s=30)


def test_a_daemon_elsewhere_has_ended_when_it_is_silent(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDASH_URL", daemon.url)
    with Client() as client:
        with pytest.raises(DaemonError, match="has not ended"):
            launch.wait_ended(client, deadline_s=0)
        daemon.be_gone()
        launch.wait_ended(client, deadline_s=20)
        assert not client.health()


def test_what_is_started_is_this_very_installation() -> None:
    done = subprocess.run([*launch.COMMAND, "--help"], capture_output=True, text=True, check=True, timeout=60)
    assert "Run the daemon" in done.stdout


def test_another_program_on_the_port_does_not_hold_it_up(
    daemon: FakeDaemon, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes the call and never answers is no daemon; ours then says why it cannot start."""
    monkeypatch.setattr(connection, "HEALTH_S", 0.2)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(launch.DaemonStartError) as caught:
        launch.ensure_daemon()
    assert "port_in_use" in caught.value.log_tail[0] or "cannot listen" in caught.value.log_tail[0]


def test_a_lock_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """With its place and the reason, instead of a traceback; here it is a folder, as root may read every file."""
    with pytest.raises(DaemonError, match=rf"{tmp_path} cannot be read \(it is a folder, and not a file\)") as caught:
        launch._locked(tmp_path)
    assert caught.value.code == "folder_unusable"
