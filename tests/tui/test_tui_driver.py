"""Bytes of a terminal as keys."""

from __future__ import annotations

import os
import signal
from unittest.mock import Mock

import pytest

from sparkdash.tui.driver import LoopDriver


@pytest.mark.parametrize(
    ("parts", "keys"),
    [
        ((b"\xc3", b"\xa9", b"q"), "é q"),
        ((b"a", b"\xe9", b"q"), "a � q"),
        ((b"\x1b[", b"Bq"), "down q"),
    ],
    ids=["a character in two parts", "Latin-1", "a sequence in two parts"],
)
async def test_keys_are_read_after_a_part_of_a_character_or_of_a_sequence(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, ...], keys: str
) -> None:
    monkeypatch.setattr(signal, "signal", Mock())
    source, terminal = os.pipe()
    with os.fdopen(source) as stdin, os.fdopen(terminal, "wb", 0) as writes:
        monkeypatch.setattr("sys.__stdin__", stdin)
        driver = LoopDriver(Mock())
        driver.input_tty, driver._loop = True, Mock()
        seen: list[str] = []
        monkeypatch.setattr(driver, "process_message", lambda key: seen.append(key.character or key.key))
        driver.run_input_thread()
        for part in parts:
            writes.write(part)
            driver._read()
    assert " ".join(seen) == keys
