"""What an interpreter runs, without its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.memory_account.program_names import LARGE, script_name, script_names


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python3 /srv/train.py --api-key=secret", "train.py"),
        ("python3 -u -X dev -W ignore train.py", "train.py"),
        ("python -m vllm.entrypoints.openai.api_server --model x", "-m vllm.entrypoints.openai.api_server"),
        ("python3 -I -u train.py", "train.py"),
        ("perl -I /srv/lib serve.pl", "serve.pl"),
        ("python3 -c import_os secret", None),
        ("node --max-old-space-size=9 /usr/lib/app/server.js", "server.js"),
        ("python3 -m", None),
        ("python3", None),
        ("python3 -", None),
        ("", None),
    ],
)
def test_the_script_or_module_is_told_and_no_argument(line: str, name: str | None) -> None:
    """Arguments may hold secrets."""
    words = line.split(" ")
    assert script_name(words, words[0]) == name


def test_a_long_name_is_cut() -> None:
    """It is somebody else's text."""
    assert len(script_name(["python3", "x" * 4000], "python3") or "") == 40


def test_only_large_interpreters_that_answer_are_asked(tmp_path: Path) -> None:
    """Not one that hangs, whose reader would hang too; nor one that has gone, nor a program of its own."""
    for pid in (1, 2, 3, 4):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(b"python3\0train.py\0")
    given = [
        ProcessMemory(1, 0, "python3.12", 0, LARGE, 0),
        ProcessMemory(2, 0, "python3", 0, LARGE, 0, stuck=True),
        ProcessMemory(3, 0, "python3", 0, LARGE - 1, 0),
        ProcessMemory(4, 0, "ollama", 0, LARGE, 0),
        ProcessMemory(5, 0, "python3", 0, LARGE, 0),
    ]
    assert script_names(given, tmp_path) == {1: "python3.12 train.py"}
