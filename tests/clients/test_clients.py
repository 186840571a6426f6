"""Clients that are installed within seconds, before a daemon of their own; run.py has the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_they_wait_for_their_model_call_tools_stream_and_leave() -> None:
    """Configured by `sparkdash connect` and asked at the same time; every request ends well in the books."""
    argv = [sys.executable, Path(__file__).with_name("run.py"), "--only", "llm:stream+cancel+tools,langchain:stream"]
    argv += ["--free-s", "60"]  # others use the box, too
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\| llm \| \S+ \| - \| \d+ s \| passed \| passed \| \d+\.\d\d s \|$", done.stdout, re.MULTILINE)
    assert re.search(r"^\| langchain \| \S+ \| - \| \d+ s \| - \| passed \| - \|$", done.stdout, re.MULTILINE)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_client_that_launch_starts_chats_streams_calls_a_tool_and_leaves() -> None:
    argv = [sys.executable, Path(__file__).with_name("run.py"), "--launch", "--only", "llm", "--free-s", "60"]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    row = r"^\| llm \| \S+ \| passed \| \d+ s \| passed \| passed \| \d+\.\d\d s \|$"
    assert re.search(row, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.timeout(300)
def test_a_prompt_for_a_broken_profile_loads_it_once_and_is_told_why() -> None:
    """llm stands for the agents that failing.py has: one load in the daemon's own list, the reason in what its user reads."""
    argv = [sys.executable, Path(__file__).with_name("failing.py"), "--only", "llm", "--dies-s", "0.5"]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\| llm \| \S+ \| 1 \| 1 \|.* did not start\. It ran out of memory", done.stdout, re.MULTILINE)
