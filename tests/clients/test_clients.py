"""Clients that are installed within seconds, before a daemon of their own; run.py has the others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


def table_of(script: str, *words: str) -> str:
    """Run a script of this folder, which passes; its table."""
    argv = [sys.executable, str(Path(__file__).with_name(script)), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_they_wait_for_their_model_call_tools_stream_and_leave() -> None:
    """Configured by `sparkdash connect` and asked at the same time; every request ends well in the books."""
    # others use the box, too
    table = table_of("run.py", "--only", "llm:stream+cancel+tools,langchain:stream", "--free-s", "60")
    assert re.search(r"^\| llm \| \S+ \| - \| \d+ s \| passed \| passed \| \d+\.\d\d s \|$", table, re.MULTILINE)
    assert re.search(r"^\| langchain \| \S+ \| - \| \d+ s \| - \| passed \| - \|$", table, re.MULTILINE)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_client_that_launch_starts_chats_streams_calls_a_tool_and_leaves() -> None:
    table = table_of("run.py", "--launch", "--only", "llm", "--free-s", "60")
    row = r"^\| llm \| \S+ \| passed \| \d+ s \| passed \| passed \| \d+\.\d\d s \|$"
    assert re.search(row, table, re.MULTILINE), table


@pytest.mark.timeout(300)
def test_a_prompt_for_a_broken_profile_loads_it_once_and_is_told_why() -> None:
    """llm stands for the agents that failing.py has: one load in the daemon's own list, the reason in what its user reads."""
    table = table_of("failing.py", "--only", "llm", "--dies-s", "0.5")
    assert re.search(r"^\| llm \| \S+ \| 1 \| 1 \|.* did not start\. It ran out of memory", table, re.MULTILINE)
