"""Sleeping until the time is over, somebody calls, or the kernel tells of pressure."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkdash.host.memory.guard import PressureAlarm, open_trigger

LONG = 60.0
"""Seconds that no test waits for."""
PRESSURE = Path("/proc/pressure/memory")


@pytest.fixture
def urgent() -> Iterator[tuple[socket.socket, int]]:
    """A socket, and a descriptor that tells POLLPRI when that sends an urgent byte, as a trigger does."""
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    receiver, _ = server.accept()
    yield sender, receiver.detach()
    sender.close()
    server.close()


def test_a_call_wakes_the_sleeper_and_is_no_pressure() -> None:
    """Also one that came before it slept."""
    alarm = PressureAlarm(None)
    threading.Timer(0.05, alarm.call).start()
    began = time.monotonic()
    assert alarm.wait(LONG) is False
    alarm.call()
    alarm.call()
    assert alarm.wait(LONG) is False
    assert alarm.wait(0.01) is False
    assert time.monotonic() - began < LONG / 2
    alarm.close()


def test_pressure_wakes_the_sleeper(urgent: tuple[socket.socket, int]) -> None:
    """And is told apart from a call."""
    sender, trigger = urgent
    alarm = PressureAlarm(trigger)
    assert alarm.has_trigger
    sender.send(b"!", socket.MSG_OOB)
    assert alarm.wait(LONG) is True
    alarm.close()


def test_a_trigger_that_breaks_is_done_without() -> None:
    """The next sleep does not end at once for it."""
    reading, writing = os.pipe()
    os.close(writing)  # POLLHUP
    alarm = PressureAlarm(reading)
    assert alarm.wait(LONG) is False
    assert not alarm.has_trigger
    assert alarm.wait(0.01) is False
    alarm.close()


def test_a_file_that_is_not_the_kernel_s_is_not_written(tmp_path: Path) -> None:
    """A trigger is set by writing."""
    file = tmp_path / "memory"
    file.write_text("full avg10=0.00\n")
    assert open_trigger(file) is None
    assert file.read_text() == "full avg10=0.00\n"
    assert open_trigger(tmp_path / "none") is None


@pytest.mark.skipif(not PRESSURE.exists(), reason="a kernel without PSI")
def test_this_kernel_takes_the_trigger_or_is_done_without() -> None:
    """Linux 6.4 takes it from any user; older ones refuse."""
    alarm = PressureAlarm(open_trigger(PRESSURE))
    assert alarm.wait(0.01) in (False, True)
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 4):
        assert alarm.has_trigger
    alarm.close()
