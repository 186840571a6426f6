"""An engine that another program launches, beside the daemon's own containers: owned like any of them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemons import ready_engines

from sparkdash import paths
from sparkdash.catalog import yaml12
from sparkdash.host.processes import leftovers

pytestmark = [pytest.mark.podman, pytest.mark.timeout(180)]


def launched_elsewhere(container: str, mark: Path) -> str:
    """Turn a profile with an image into one whose starter runs that image by its own command."""
    profile, _ = yaml12.read_yaml(container)
    mounts = [word for one in profile.pop("mounts") for word in ("-v", f"{one['source']}:{one['target']}:ro")]
    run = ["podman", "run", "--rm", "--cidfile", "{cidfile}", "--network", "host", "--entrypoint", "", *mounts]
    serve = [*profile.pop("command"), "serve", "{target}", "--served-model-name", "{name}", "--port", "{port}"]
    prepare = ["sh", "-c", f"echo no capsule for {{name}} >&2; test -e {mark}"]
    return yaml12.dump(profile | {"starter": {"prepare": prepare, "start": [*run, profile.pop("image"), *serve]}})


def test_an_engine_of_another_starter_is_prepared_owned_adopted_and_ended(
    new_daemon: Callable[..., Any], tiny: Any, tmp_path: Path
) -> None:
    daemon = new_daemon(runtime="podman", min_dwell_s=0, side_by_side=False, stop_grace_s=2)
    daemon.write("ours", tiny("ours"))
    daemon.write("theirs", launched_elsewhere(tiny("theirs"), tmp_path / "capsule"))
    daemon.start()
    assert daemon.sparkdash("use", "ours").returncode == 0
    refused = daemon.sparkdash("use", "theirs")
    assert "sh, which prepares it, ended with 1: no capsule for theirs" in " ".join(refused.stderr.split())
    assert "ours" in ready_engines(daemon.state())  # what cannot be prepared evicts nobody

    (tmp_path / "capsule").touch()
    assert daemon.sparkdash("use", "theirs").returncode == 0
    assert daemon.containers() == []
    (found,) = (daemon.root / "state" / "processes").glob("*.cid")
    id_ = found.read_text()
    assert leftovers.processes_in_containers([id_])[id_]
    assert "sparkdash stop theirs" in daemon.sparkdash("memory").stdout

    daemon.kill()
    daemon.start()
    daemon.until(lambda state: "theirs" in ready_engines(state))
    assert daemon.post("/v1/chat/completions", {"model": "theirs", "messages": [], "max_tokens": 2})["choices"]
    assert daemon.sparkdash("stop", "theirs").returncode == 0
    assert leftovers.processes_in_containers([id_])[id_] == set()
    assert leftovers.processes_of_owner(paths.owner(daemon.root / "state")) == {}
    assert subprocess.check_output(["podman", "ps", "--all", "--quiet", "--filter", f"id={id_}"]) == b""
