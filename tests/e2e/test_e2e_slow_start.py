"""A daemon whose podman hangs when it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

HERE = Path(__file__).parent


@pytest.fixture
def hanging(new_daemon: Callable[..., Any], tiny: Any, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    """A daemon that knows one profile, and the file whose end fixes its podman."""
    daemon = new_daemon(runtime="podman", reserve_gib=1)
    program, wedged = tmp_path / "podman", tmp_path / "wedged"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_podman.py"} "$@"\n')
    program.chmod(0o755)
    wedged.touch()
    daemon.env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAKE_PODMAN": str(tmp_path)}
    daemon.write("a", tiny("a", image="any"))
    yield daemon, wedged
    wedged.unlink(missing_ok=True)


def test_a_podman_that_hangs_at_the_start_keeps_nobody_else_waiting(hanging: tuple[Any, Path]) -> None:
    """Whoever asks for no engine is answered while podman still hangs, and is told that it does; a request waits for it."""
    daemon, wedged = hanging
    daemon.start()
    assert daemon.call("GET", "/api/hello")[0] == 200
    assert next(model["id"] for model in daemon.get("/v1/models")["data"]) == "a"
    # the call that hangs is given up after 20 s, and that is told
    assert [notice["code"] for notice in daemon.state()["notices"]] == ["runtime_slow"]
    wedged.unlink()
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    assert "error" not in daemon.post("/v1/chat/completions", body)
