"""Connection to a node over a real sshd: calls, variables, streams, forwarded ports, and each way to lose it."""

import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import local_sshd
import pytest
from local_sshd import LocalSshd, free_port
from refusals import refused

from sparkdash.errors import HostError
from sparkdash.nodes import discover
from sparkdash.nodes.ssh import connection as connections
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.nodes.ssh.ssh_command import fingerprint

pytestmark = [pytest.mark.podman]


class Opened:
    """A connection and what was told about its losses."""

    def __init__(self, sshd: LocalSshd, folder: Path) -> None:
        self.losses: list[HostError] = []
        self.connection = NodeConnection(sshd.node, on_lost=self.losses.append, folder=folder)


@pytest.fixture
async def opened(sshd: LocalSshd) -> AsyncIterator[Opened]:
    """A connection that is not made yet."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        made = Opened(sshd, Path(folder))
        yield made
        await made.connection.close()
        assert left_in(Path(folder)) == [], "a socket was left behind"


def left_in(folder: Path) -> list[Path]:
    """Sockets of masters in a folder."""
    return list(folder.glob("*-*-*"))


@pytest.fixture
def node(opened: Opened) -> NodeConnection:
    """The connection alone."""
    return opened.connection


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    await asyncio.to_thread(local_sshd.until, holds, 30)


async def refusal(node: NodeConnection) -> HostError:
    """The error of the next call."""
    with pytest.raises(HostError) as refused:
        await node.run(["true"], deadline_s=20)
    return refused.value


# The first contact


async def test_the_host_key_is_seen_without_logging_in(sshd: LocalSshd) -> None:
    logins = sshd.connections()
    assert await discover.ask_host_key("spark2", sshd.target, sshd.port) == sshd.host_key
    assert sshd.connections() == logins


async def test_a_port_on_which_nobody_listens_is_unreachable_with_sshs_words(sshd: LocalSshd) -> None:
    sshd.stop()
    with refused("node_unreachable", "Connection refused"):
        await discover.ask_host_key("spark2", sshd.target, sshd.port)


@pytest.mark.full
async def test_ssh_tells_what_it_takes_an_address_for() -> None:
    found = await discover.resolve("lab@192.0.2.7")
    assert (found.host, found.port, found.user) == ("192.0.2.7", 22, "lab")


@pytest.mark.full
async def test_an_address_that_ssh_refuses_is_named() -> None:
    with refused("ssh_address_wrong", "is no address for ssh"):
        await discover.resolve("-oProxyCommand=touch /tmp/x")


# Calls


async def test_the_exit_code_of_a_program_comes_through(node: NodeConnection) -> None:
    codes = [0, 1, 7, 126, 254, 255]
    calls = (node.run(["sh", "-c", f"echo out; echo err >&2; exit {code}"], deadline_s=20) for code in codes)
    done = [(each.code, each.out, each.err) for each in await asyncio.gather(*calls)]
    assert done == [(code, "out\n", "err\n") for code in codes]


@pytest.mark.full
async def test_a_program_that_a_signal_ends_has_128_and_its_number(node: NodeConnection) -> None:
    assert (await node.run(["sh", "-c", "kill -9 $$"], deadline_s=20)).code == 137
    assert (await node.run(["sh", "-c", "kill -TERM $$"], deadline_s=20)).code == 143


HOSTILE = ("a b", "'", '"', "$HOME", "`id`", "\\", "{{json .}}", "*", "", "é", "-n", ";rm", "\ttab", "two\nlines", "!")


async def test_words_arrive_as_they_are_whatever_a_shell_makes_of_them(node: NodeConnection) -> None:
    done = await node.run(["python3", "-c", "import sys; print(sys.argv[1:])", *HOSTILE], deadline_s=20)
    assert done.out == f"{list(HOSTILE)}\n"


async def test_variables_arrive_as_they_are_and_the_input_after_them(node: NodeConnection) -> None:
    values = {f"V{number}": value for number, value in enumerate((*HOSTILE, " ends with space ", "a\\nb", "\\c\\0101"))}
    script = "import os, sys, json; print(json.dumps([{k: os.environ[k] for k in sys.argv[1:]}, sys.stdin.read()]))"
    done = await node.run(["python3", "-c", script, *values], deadline_s=20, stdin=b"the input", variables=values)
    assert json.loads(done.out) == [values, "the input"]


async def test_a_call_past_its_deadline_ends_and_the_connection_stays(opened: Opened, sshd: LocalSshd) -> None:
    node = opened.connection
    await node.open()
    logins = sshd.connections()
    with refused("node_timeout", "`sleep 60` on spark2 gave no answer for 0 s"):
        await node.run(["sleep", "60"], deadline_s=0.3)
    assert (await node.run(["echo", "here"], deadline_s=20)).out == "here\n"
    assert (sshd.connections(), opened.losses) == (logins, [])


@pytest.mark.full
async def test_more_calls_than_sshd_has_sessions_share_one_connection(node: NodeConnection, sshd: LocalSshd) -> None:
    logins = sshd.connections()
    done = await asyncio.gather(*(node.run(["sh", "-c", "sleep 0.05; echo x"], deadline_s=30) for _ in range(20)))
    assert {each.out for each in done} == {"x\n"}
    assert sshd.connections() == logins + 1


@pytest.mark.full
async def test_a_login_script_that_prints_does_not_hide_that_the_connection_is_made(sshd: LocalSshd) -> None:
    sshd.stop()
    sshd.extra = 'ForceCommand echo Welcome to DGX OS; echo; eval "$SSH_ORIGINAL_COMMAND"'
    sshd.start()
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        node = NodeConnection(sshd.node, folder=Path(folder))
        await node.open()
        assert node.alive
        await node.close()


# Refusals


async def test_a_changed_host_key_is_refused_with_both_fingerprints(node: NodeConnection, sshd: LocalSshd) -> None:
    pinned = fingerprint(sshd.host_key)
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    found = await refusal(node)
    assert found.code == "host_key_changed"
    assert pinned in found.message
    assert fingerprint(sshd.host_key) in found.message
    assert "sparkdash nodes remove spark2" in (found.hint or "")
    assert not node.alive


async def test_a_box_without_ssh_says_how_to_install_it(
    node: NodeConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sparkdash.nodes.ssh.connection._ends_with_us", tuple)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await refusal(node)
    assert (found.code, found.hint) == ("ssh_missing", "Install it: `sudo apt-get install openssh-client`.")


# Losses


async def test_the_end_of_sshd_is_told_once_and_the_next_call_connects_again(opened: Opened, sshd: LocalSshd) -> None:
    node = opened.connection
    await node.open()
    sshd.stop()
    await until(lambda: opened.losses)
    assert [each.code for each in opened.losses] == ["node_unreachable"]
    assert not node.alive
    sshd.start()
    assert (await node.run(["echo", "back"], deadline_s=20)).out == "back\n"
    assert len(opened.losses) == 1


@pytest.mark.full
async def test_closing_is_no_loss(opened: Opened) -> None:
    await opened.connection.open()
    await opened.connection.close()
    await asyncio.sleep(0)
    assert opened.losses == []


# Forwarded ports


class Echo:
    """A server on the loopback that answers each client with what it sends."""

    def __init__(self) -> None:
        self.port = 0

    async def __aenter__(self) -> "Echo":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()


async def said(port: int) -> bytes:
    """The answer of the echo behind a port; empty where nobody listens."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    writer.write(b"hello\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_forwarded_port_outlives_a_lost_connection_and_ends_when_it_is_cancelled(
    opened: Opened, sshd: LocalSshd
) -> None:
    node, port = opened.connection, free_port()
    async with Echo() as echo:
        await node.forward(port, echo.port)
        assert await said(port) == b"hello\n"
        await node.forward(port, echo.port)
        sshd.stop()
        await until(lambda: opened.losses)
        assert await said(port) == b""
        sshd.start()
        await node.open()
        assert await said(port) == b"hello\n"
        await node.cancel_forward(port)
        assert await said(port) == b""
        await node.cancel_forward(port)


@pytest.mark.full
async def test_a_port_that_was_taken_during_a_loss_costs_no_call_and_is_forwarded_when_it_is_free(
    opened: Opened, sshd: LocalSshd
) -> None:
    node, port = opened.connection, free_port()
    async with Echo() as echo:
        await node.forward(port, echo.port)
        sshd.stop()
        await until(lambda: opened.losses)
        with socket.create_server(("127.0.0.1", port)):
            sshd.start()
            assert (await node.run(["echo", "here"], deadline_s=20)).out == "here\n"
        assert (await node.run(["true"], deadline_s=20)).code == 0
        assert await said(port) == b"hello\n"


@pytest.mark.full
async def test_a_port_that_another_program_has_cannot_be_forwarded(node: NodeConnection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        with refused("port_in_use", hint=f"ss -ltnp sport = :{port}"):
            await node.forward(port)


# Streams


async def test_a_stream_has_a_connection_of_its_own_and_ends_with_its_block(
    node: NodeConnection, sshd: LocalSshd
) -> None:
    await node.open()
    logins = sshd.connections()
    async with node.child(["sh", "-c", "echo begun; exec cat"]) as process:
        assert await process.stdout.readline() == b"begun\n"
        process.stdin.write(b"there and back\n")
        assert await process.stdout.readline() == b"there and back\n"
        assert sshd.connections() == logins + 1
    assert process.returncode is not None


@pytest.mark.full
async def test_more_streams_than_sshd_has_sessions_take_a_further_connection(
    node: NodeConnection, sshd: LocalSshd
) -> None:
    logins = sshd.connections()
    streams = [node.child(["sh", "-c", "echo here; exec cat"]) for _ in range(connections.SESSIONS + 1)]
    for each in streams:
        process = await each.__aenter__()
        assert await process.stdout.readline() == b"here\n"
    assert sshd.connections() == logins + 2
    for each in streams:
        await each.__aexit__(None, None, None)


@pytest.mark.full
async def test_a_followed_program_ends_on_the_node_when_this_side_is_killed(
    node: NodeConnection, tmp_path: Path
) -> None:
    from sparkdash.nodes.ssh import ssh_command

    followed = ["sh", "-c", f"echo $$ >{tmp_path}/pid; echo up; sleep 600"]
    async with node.stream(ssh_command.remote_until_input_ends(followed)) as process:
        assert await process.stdout.readline() == b"up\n"
        pid = int((tmp_path / "pid").read_text())
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{pid}").exists())
