"""Every client's route, end to end: `connect --test` through a daemon to an engine, with a key."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkdash.connect.clients import RECIPES

PROFILE = "profile: tiny\nengine: sim\nsim: {load_s: 0.1, memory_gib: 0.1, time_scale: 20}\n"


@pytest.fixture(scope="module")
def keyed(new_daemon: Callable[..., Any]) -> Iterator[Any]:
    daemon = new_daemon(runtime="process", reserve_gib=0)
    daemon.write("tiny", PROFILE)
    daemon.start()
    daemon.env["SPARKDASH_KEY"] = daemon.sparkdash("keys", "add", "client").stdout.strip()
    yield daemon
    daemon.sparkdash("stop", "--all")
    daemon.end(engines=False)


def test_every_clients_route_is_proved(keyed: Any) -> None:
    by_protocol = {recipe.protocol: name for name, recipe in RECIPES.items()}
    for protocol, name in by_protocol.items():
        done = keyed.sparkdash("connect", name, "--test", "--json")
        assert done.returncode == 0, (protocol, done.stderr)
        trial = json.loads(done.stdout)
        assert trial["model"] == "tiny"
        assert trial["text"].strip()
        assert trial["total_s"] >= trial["first_s"] > 0


def test_a_route_that_is_closed_is_said(keyed: Any) -> None:
    right = keyed.env["SPARKDASH_KEY"]
    keyed.env["SPARKDASH_KEY"] = "wrong"
    try:
        done = keyed.sparkdash("connect", "codex", "--test", "--model", "tiny")
    finally:
        keyed.env["SPARKDASH_KEY"] = right
    assert done.returncode == 3
    assert "is unknown or was revoked" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.environ.get("SPARKDASH_KEY") is None
