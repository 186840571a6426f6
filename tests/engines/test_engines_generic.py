"""engine: generic: any server, as its profile describes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import ProfileError
from sparkdash.host.podman import argv

LAUNCH = LaunchContext(port=8123, containerised=True, hf_home="/hf", cache_dir="/cache")


def generic(**values: Any) -> Profile:
    return Profile.model_validate({"name": "mine", "engine": "generic", "image": "localhost/mine:1", **values})


def test_the_port_and_the_name_stand_where_the_command_has_their_places() -> None:
    made = generic(
        command=["serve", "--bind", "127.0.0.1:{port}"],
        args={"alias": "{name}", "model": "{target}"},
        env={"PORT": "{port}"},
        models={"target": {"path": "/models/m.gguf"}},
    )
    spec = adapter_of(made).container(made, LAUNCH)
    assert spec.argv == ("serve", "--bind", "127.0.0.1:8123", "--alias", "mine", "--model", "/models/m.gguf")
    assert (spec.env["PORT"], spec.port, spec.inner_port) == ("8123", 8123, None)


def test_a_fixed_port_is_published_on_the_loopback_of_a_network_of_its_own() -> None:
    """An image whose server cannot be told a port listens on all addresses, so it gets no host network."""
    made = generic(server={"port": 8000, "stop_signal": "SIGINT"})
    words = argv.run("podman", adapter_of(made).container(made, LAUNCH))
    assert "127.0.0.1:8123:8000" in words
    assert "host" not in words
    assert "--entrypoint" not in words
    assert words[words.index("--stop-signal") + 1] == "SIGINT"
    assert words[-1] == "localhost/mine:1"


def test_the_image_keeps_its_entrypoint_when_the_profile_says_so() -> None:
    """`command` then holds only arguments."""
    made = generic(command=["serve", "owner/model"], args={"port": "{port}"}, server={"keep_entrypoint": True})
    words = argv.run("podman", adapter_of(made).container(made, LAUNCH))
    assert "--entrypoint" not in words
    assert words[-5:] == ["localhost/mine:1", "serve", "owner/model", "--port", "8123"]


@pytest.mark.parametrize(
    ("containerised", "values"),
    [(True, {"command": ["serve"]}), (False, {"command": ["serve"], "server": {"port": 8000}})],
)
def test_a_server_that_nobody_tells_its_port_is_refused(containerised: bool, values: dict[str, Any]) -> None:
    """A plain process shares the ports of the box, so its port cannot be fixed."""
    made = generic(**values)
    with pytest.raises(ProfileError, match="port") as caught:
        adapter_of(made).container(made, replace(LAUNCH, containerised=containerised))
    assert "{port}" in (caught.value.hint or "")


def test_log_lines_and_failures_are_read_by_the_profiles_patterns() -> None:
    """Stages and causes come from the profile; common causes still count."""
    made = generic(
        server={
            "port": 1,
            "log": [{"stage": "weights", "pattern": r"loaded (?P<done>\d+) of (?P<total>\d+)"}],
            "failures": [{"pattern": "no lane", "message": "It found no lane", "code": "out_of_memory"}],
        }
    )
    adapter = adapter_of(made)
    progress = adapter.read_log("loaded 3 of 4 parts")
    assert progress is not None
    assert (progress.stage, progress.fraction) == ("weights", 0.75)
    assert adapter.classify(["no lane left"], 1).message == "It found no lane: no lane left"
    assert adapter.classify(["CUDA out of memory"], 1).code == "out_of_memory"


def test_metrics_are_found_out_named_or_absent() -> None:
    """Without a word of the profile telemetry looks; with names it reads them; with no path it leaves the server."""
    found = adapter_of(generic(server={"port": 1})).metrics
    named = adapter_of(
        generic(server={"port": 1, "metrics": {"names": {"running": "r", "moving": ["a", "b"]}}})
    ).metrics
    none = adapter_of(generic(server={"port": 1, "metrics": {"path": None}})).metrics
    assert not found.recognised
    assert (named.path, named.running, named.moving) == ("/metrics", ("r",), ("a", "b"))
    assert none.recognised
    assert none.path is None


def test_only_what_changes_the_engine_changes_the_fingerprint() -> None:
    """A new log pattern restarts nothing."""
    base = generic(server={"port": 1})
    assert base.engine is EngineKind.GENERIC
    assert generic(server={"port": 1, "health": "/up", "log": []}).fingerprint == base.fingerprint
    assert generic(server={"port": 2}).fingerprint != base.fingerprint
