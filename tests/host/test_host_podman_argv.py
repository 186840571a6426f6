"""Command lines of podman and docker."""

from __future__ import annotations

import shlex

import pytest

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import Mount
from sparkdash.host.podman import argv

SPEC = ContainerSpec(
    name="sparkdash-qwen3-coder",
    image="localhost/vllm-turbo:dual",
    argv=("vllm", "serve", "/models/qwen", "--speculative-config", '{"method":"eagle3"}', "--port", "18000"),
    port=18000,
    env={"A": "two words"},
    mounts=(Mount(source="/data/m", target="/models"), Mount(source="/c", target="/cache", read_only=False)),
    tmpfs=("/tmp:size=1g",),
    devices=("nvidia.com/gpu=all",),
    shm_size="8g",
    labels={"sparkdash.profile": "qwen3-coder", "sparkdash.port": "18000"},
)


def test_podman_run_is_exactly_this() -> None:
    """The whole command line, as an owner would write it."""
    assert argv.run("podman", SPEC) == [
        "podman", "run", "-d", "--replace", "--name", "sparkdash-qwen3-coder", "--pull=never",
        "--log-driver", "k8s-file", "--log-opt", "max-size=64m", "--network", "host",
        "--device", "nvidia.com/gpu=all", "--shm-size", "8g",
        "-v", "/data/m:/models:ro", "-v", "/c:/cache", "--tmpfs", "/tmp:size=1g", "-e", "A=two words",
        "--label", "sparkdash.profile=qwen3-coder", "--label", "sparkdash.port=18000",
        "--entrypoint", "vllm", "localhost/vllm-turbo:dual",
        "serve", "/models/qwen", "--speculative-config", '{"method":"eagle3"}', "--port", "18000",
    ]  # fmt: skip


def test_docker_run_differs_in_a_few_flags() -> None:
    """Docker has no --replace and no CDI by default, and its -v would invent missing folders."""
    command = argv.run("docker", SPEC)
    assert "--replace" not in command
    assert command[command.index("--gpus") + 1] == "all"
    assert command[command.index("--log-driver") + 1] == "json-file"
    assert "type=bind,source=/data/m,target=/models,readonly" in command
    assert "type=bind,source=/c,target=/cache" in command


@pytest.mark.parametrize(
    ("device", "flags"),
    [("nvidia.com/gpu=0", ["--gpus", "device=0"]), ("/dev/infiniband", ["--device", "/dev/infiniband"])],
)
def test_docker_devices(device: str, flags: list[str]) -> None:
    """One GPU by its number; anything else is a device node."""
    command = argv.run("docker", SPEC.model_copy(update={"devices": (device,)}))
    assert shlex.join(flags) in shlex.join(command)


@pytest.mark.parametrize("program", ["podman", "docker"])
def test_what_is_never_asked_for(program: str) -> None:
    """No shared IPC, no restart policy, no removal at exit: each has cost somebody a night."""
    words = " ".join(argv.run(program, SPEC))
    assert not any(flag in words for flag in ("--ipc", "--restart", "--rm", "--privileged"))


def test_label_filters() -> None:
    """An empty value asks for the label, whatever it says."""
    command = argv.ids("podman", {"sparkdash.profile": "", "sparkdash.owner": "ab12"})
    assert command[-4:] == ["--filter", "label=sparkdash.profile", "--filter", "label=sparkdash.owner=ab12"]


def test_reading_and_ending() -> None:
    """The short commands, for both programs where they differ."""
    assert argv.logs("podman", "n", follow=True, tail=5) == [
        "podman", "--log-level=error", "logs", "--follow", "--tail", "5", "n",
    ]  # fmt: skip
    assert argv.logs("docker", "n", follow=False, tail=None) == ["docker", "logs", "n"]
    assert argv.top("podman", "n") == ["podman", "top", "n", "hpid"]
    assert argv.top("docker", "n") == ["docker", "top", "n", "-o", "pid"]
    assert argv.stop("podman", "n", 30) == ["podman", "stop", "-t", "30", "n"]
    assert argv.remove("podman", "n") == ["podman", "rm", "--force", "--volumes", "-t", "0", "n"]
    assert argv.remove("docker", "n") == ["docker", "rm", "--force", "--volumes", "n"]


def test_the_pasted_text_is_the_argv() -> None:
    """A shell reads exactly the argv out of the printed text, one flag a line, values beside their flags."""
    text = argv.shell(argv.run("podman", SPEC))
    assert shlex.split(text.replace("\\\n", "")) == argv.run("podman", SPEC)
    lines = [line.strip(" \\") for line in text.splitlines()]
    assert lines[:3] == ["podman run", "-d", "--replace"]
    assert "-e 'A=two words'" in lines
    assert "localhost/vllm-turbo:dual serve /models/qwen" in lines
    assert """--speculative-config '{"method":"eagle3"}'""" in lines


def test_waiting_looks_once_a_second_where_that_can_be_said() -> None:
    """podman polls while it waits; docker is told by its daemon and knows no interval."""
    assert argv.wait("podman", "c", soon=False) == ["podman", "wait", "--interval", "1s", "c"]
    assert argv.wait("podman", "c", soon=True) == ["podman", "wait", "--interval", "50ms", "c"]
    assert argv.wait("docker", "c", soon=False) == ["docker", "wait", "c"]
