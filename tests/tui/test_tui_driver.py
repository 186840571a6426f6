"""Bytes of a terminal as keys."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from unittest.mock import Mock

import pytest

from sparkdash.tui.driver import LoopDriver


@pytest.fixture
async def driver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[LoopDriver, int]]:
    """A driver that reads a pipe, and the end of it that is written to."""
    monkeypatch.setattr(signal, "signal", Mock())
    source, terminal = os.pipe()
    with os.fdopen(source) as stdin:
        monkeypatch.setattr("sys.__stdin__", stdin)
        driver = LoopDriver(Mock())
        driver._loop = Mock()
        driver.run_input_thread()
        yield driver, terminal


@pytest.mark.parametrize(
    ("parts", "keys"),
    [((b"\xc3", b"\xa9", b"q"), "é q"), ((b"a", b"\xe9", b"q"), "a � q"), ((b"\x1b[", b"Bq"), "down q")],
    ids=["a character in two parts", "Latin-1", "a sequence in two parts"],
)
async def test_keys_are_read_after_a_part_of_a_character_or_of_a_sequence(
    driver: tuple[LoopDriver, int], monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, ...], keys: str
) -> None:
    reads, terminal = driver
    seen: list[str] = []
    monkeypatch.setattr(reads, "process_message", lambda key: seen.append(key.character or key.key))
    for part in parts:
        os.write(terminal, part)
        reads._read()
    os.close(terminal)
    assert " ".join(seen) == keys


async def test_input_without_keys_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `sparkdash < /dev/null`: the end of such input is there at once, and again and again."""
    loop, failures = asyncio.get_running_loop(), Mock()
    loop.set_exception_handler(failures)
    monkeypatch.setattr(signal, "signal", Mock())
    with os.fdopen(os.open(os.devnull, os.O_RDONLY)) as stdin:
        monkeypatch.setattr("sys.__stdin__", stdin)
        driver = LoopDriver(Mock())
        driver._loop = loop
        driver.run_input_thread()
        await asyncio.sleep(0)
        failures.assert_not_called()
