"""Secrets reach an engine by name only."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter
from sparkdash.host.podman import argv
from sparkdash.host.processes.process import Process

SECRET = "hf_notarealtokenbutlongenough"


def spec(monkeypatch: pytest.MonkeyPatch) -> ContainerSpec:
    """What the dialect makes of a profile that hands HF_TOKEN on, while the daemon has one."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    profile = Profile(
        name="a", engine=EngineKind.VLLM, image="i", models={"target": ModelRef(hf="o/a")}, env_from=("HF_TOKEN",)
    )
    return adapter(profile.engine).container(
        profile, LaunchContext(port=1, containerised=True, hf_home="/h", cache_dir="/c")
    )


@pytest.mark.parametrize("program", ["podman", "docker"])
def test_the_command_line_names_the_variable_only(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """`-e HF_TOKEN`: the runtime takes the value from its own environment."""
    words = argv.run(program, spec(monkeypatch))
    assert words[words.index("HF_TOKEN") - 1] == "-e"
    assert SECRET not in argv.shell(words)


def test_a_process_inherits_it_unseen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the argv nor the printed command has the value."""
    made = spec(monkeypatch)
    assert SECRET not in " ".join(Process(tmp_path).command(made))
    assert SECRET not in made.model_dump_json()


def test_handing_a_variable_on_is_another_launch() -> None:
    """A name in env_from changes the launch's fingerprint; its absence leaves the fingerprint as it was."""
    plain = Profile(name="a", engine=EngineKind.VLLM)
    assert plain.fingerprint == plain.model_copy(update={"env_from": ()}).fingerprint
    assert plain.fingerprint != plain.model_copy(update={"env_from": ("HF_TOKEN",)}).fingerprint


@pytest.mark.parametrize("program", ["podman", "docker"])
def test_a_literal_secret_is_not_on_the_command_line_either(program: str) -> None:
    """Where its owner silenced the rule: the runtime gets it in its environment, which `ps` does not show."""
    made = ContainerSpec(name="a", image="i", argv=("x",), port=1, labels={}, env={"HF_TOKEN": SECRET, "A": "1"})
    words = argv.run(program, made)
    assert SECRET not in argv.shell(words)
    assert words[words.index("HF_TOKEN") - 1] == "-e"
    assert "A=1" in words
    assert argv.environment(made) == {"HF_TOKEN": SECRET}


def test_a_process_prints_it_masked(tmp_path: Path) -> None:
    """`sparkdash use NAME --dry-run` with plain processes."""
    made = ContainerSpec(name="a", image=None, argv=("x",), port=1, labels={}, env={"HF_TOKEN": SECRET, "A": "1"})
    assert Process(tmp_path).command(made) == ["env", "HF_TOKEN=***", "A=1", "x"]
