"""Words of the daemon to systemd, through a real datagram socket."""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash.daemon import listeners
from sparkdash.daemon.listeners import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(str(tmp_path / "notify"))
        door.settimeout(20)
        yield door


def heard(door: socket.socket) -> str:
    return door.recv(4096).decode()


async def hears(door: socket.socket) -> str:
    """The same without blocking the loop."""
    return await asyncio.to_thread(heard, door)


async def test_ready_pings_and_stopping_come_in_their_order(systemd: socket.socket) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(Notifier(systemd.getsockname(), 0.02).attend(stop.wait(), "serving x"))
    assert await hears(systemd) == "READY=1\nSTATUS=serving x"
    assert [await hears(systemd) for _ in range(3)] == ["WATCHDOG=1"] * 3
    systemd.setblocking(False)
    assert set(_drain(systemd)) <= {"WATCHDOG=1"}  # the kernel keeps ten, and nobody waits for room
    stop.set()
    await task
    *pings, last = _drain(systemd)
    assert last == "STOPPING=1"
    assert set(pings) <= {"WATCHDOG=1"}


async def test_a_stuck_loop_sends_no_ping(systemd: socket.socket) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(Notifier(systemd.getsockname(), 0.01).attend(stop.wait(), "x"))
    assert "READY=1" in await hears(systemd)
    assert await hears(systemd) == "WATCHDOG=1"
    systemd.setblocking(False)
    _drain(systemd)
    blocked_for_forty_pings = select.select([systemd], [], [], 0.2)
    assert blocked_for_forty_pings == ([], [], [])
    stop.set()
    await task


def _drain(door: socket.socket) -> list[str]:
    found = []
    try:
        while True:
            found.append(heard(door))
    except BlockingIOError:
        return found


async def test_a_daemon_that_crashes_says_that_it_stops(systemd: socket.socket) -> None:
    """Cancelled, not stopped: systemd need not wait for the watchdog."""
    task = asyncio.create_task(Notifier(systemd.getsockname()).attend(asyncio.Event().wait(), "x"))
    assert "READY=1" in await hears(systemd)
    task.cancel()
    assert await hears(systemd) == "STOPPING=1"


def test_an_abstract_socket_is_understood() -> None:
    """systemd may hand out one: its name begins with @ in the variable and with NUL in the kernel."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        name = f"sparkdash-test-{os.getpid()}"
        door.bind(f"\0{name}")
        Notifier(f"@{name}").tell("READY=1")
        assert heard(door) == "READY=1"


@pytest.mark.parametrize("address", [None, "/nowhere/notify", "relative"])
def test_nobody_listening_is_no_error(address: str | None) -> None:
    Notifier(address).tell("READY=1")


def test_the_variables_are_taken_out_of_the_environment() -> None:
    """podman would answer to them as well, and a container's monitor would be taken for the daemon."""
    environ = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    assert listeners.notifier_from_environment(environ) == Notifier("/run/x", 60.0)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [({}, None), ({"WATCHDOG_USEC": "0"}, None), ({"WATCHDOG_USEC": "soon"}, None),
     ({"WATCHDOG_USEC": "5000000"}, 5.0), ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, None)],
)  # fmt: skip
def test_the_watchdog_is_ours_only_when_it_names_us(environ: dict[str, str], watchdog_s: float | None) -> None:
    """WATCHDOG_PID names who is meant (sd_watchdog_enabled(3))."""
    assert listeners.notifier_from_environment(dict(environ)).watchdog_s == watchdog_s


async def test_the_real_daemon_tells_systemd(
    systemd: socket.socket, new_daemon: Callable[..., Any], tmp_path: Path
) -> None:
    """READY once it serves, WATCHDOG, STOPPING on SIGTERM; and its children do not inherit the socket."""
    daemon = new_daemon(runtime="process")
    daemon.env |= {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "200000"}
    await asyncio.to_thread(daemon.start)
    stored = [await hears(systemd) for _ in range(2)]
    assert stored == ["FDSTORE=1\nFDNAME=sparkdash-tcp", "FDSTORE=1\nFDNAME=sparkdash-unix"]
    said = await hears(systemd)
    assert said == f"READY=1\nSTATUS=serving {daemon.url}/v1 with process"
    assert await hears(systemd) == "WATCHDOG=1"
    ending = asyncio.ensure_future(asyncio.to_thread(daemon.end))
    while (said := await hears(systemd)) != "STOPPING=1":  # all the while, as the kernel keeps ten and no more
        assert said == "WATCHDOG=1"
    assert await ending == 0
    systemd.setblocking(False)
    assert _drain(systemd) == []
