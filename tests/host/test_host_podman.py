"""Command lines of podman, and the meaning of its answers."""

import json
import os
import select
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import ContainerSpec, ContainerState
from sparkdash.domain.profile import EngineKind, ModelRef, Mount, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import answers, argv, podman_host
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes.process import Process

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
    command = argv.run("docker", SPEC.model_copy(update={"devices": (device,)}))
    assert shlex.join(flags) in shlex.join(command)


@pytest.mark.parametrize("program", ["podman", "docker"])
def test_what_is_never_asked_for(program: str) -> None:
    """No shared IPC, no restart policy, no removal at exit: each has cost somebody a night."""
    words = " ".join(argv.run(program, SPEC))
    assert not any(flag in words for flag in ("--ipc", "--restart", "--rm", "--privileged"))


def test_label_filters() -> None:
    command = argv.ids("podman", {"sparkdash.profile": "", "sparkdash.owner": "ab12"})
    assert command[-4:] == ["--filter", "label=sparkdash.profile", "--filter", "label=sparkdash.owner=ab12"]


def test_reading_and_ending() -> None:
    assert argv.logs("podman", "n", follow=True, tail=5) == [
        "podman", "--log-level=fatal", "logs", "--follow", "--tail", "5", "n",
    ]  # fmt: skip
    assert argv.logs("docker", "n", follow=False, tail=None) == ["docker", "logs", "n"]
    assert argv.top("podman", "n") == ["podman", "top", "n", "hpid"]
    assert argv.top("docker", "n") == ["docker", "top", "n", "-o", "pid"]
    assert argv.stop("podman", "n", 30) == ["podman", "stop", "-t", "30", "n"]
    assert argv.remove("podman", "n") == ["podman", "rm", "--force", "--volumes", "-t", "0", "n"]
    assert argv.remove("docker", "n") == ["docker", "rm", "--force", "--volumes", "n"]
    assert argv.wait("podman", "n", soon=False) == [
        "podman",
        "wait",
        "--interval",
        "1s",
        "n",
    ]  # it polls while it waits
    assert argv.wait("podman", "n", soon=True) == ["podman", "wait", "--interval", "50ms", "n"]
    assert argv.wait("docker", "n", soon=False) == ["docker", "wait", "n"]


def test_the_pasted_text_is_the_argv() -> None:
    text = argv.shell(argv.run("podman", SPEC))
    assert shlex.split(text.replace("\\\n", "")) == argv.run("podman", SPEC)
    lines = [line.strip(" \\") for line in text.splitlines()]
    assert lines[:3] == ["podman run", "-d", "--replace"]
    assert "-e 'A=two words'" in lines
    assert "localhost/vllm-turbo:dual serve /models/qwen" in lines
    assert """--speculative-config '{"method":"eagle3"}'""" in lines


ANSWERED_SPEC = ContainerSpec(name="sparkdash-a", image="localhost/a:1", argv=("vllm",), port=1)

PODMAN = {
    "Id": "255af843",
    "Name": "sparkdash-a",
    "ImageName": "localhost/a:1",
    "State": {"Status": "running", "Pid": 9147, "ExitCode": 0, "StartedAt": "2026-11-21T07:03:20.923210392Z"},
    "Config": {"Labels": {"sparkdash.profile": "a,b=c"}, "Image": "localhost/a:1"},
}
DOCKER = {
    "Id": "f00d",
    "Name": "/sparkdash-a",
    "Image": "sha256:1234",
    "State": {"Status": "exited", "Pid": 0, "ExitCode": 137, "StartedAt": "2026-11-21T09:03:20.9232+02:00"},
    "Config": {"Labels": None, "Image": "vllm/vllm-openai:v0.33.0"},
}
CREATED = {
    "Id": "c",
    "Name": "c",
    "State": {"Status": "created", "Pid": 0, "ExitCode": 0, "StartedAt": "0001-01-01T00:00:00Z"},
}


def test_a_running_podman_container() -> None:
    """All fields; a container that runs has no exit code, though podman says 0."""
    (info,) = answers.containers(json.dumps([PODMAN]))
    assert (info.name, info.state, info.pid, info.exit_code) == ("sparkdash-a", ContainerState.RUNNING, 9147, None)
    assert info.labels == {"sparkdash.profile": "a,b=c"}
    assert info.image == "localhost/a:1"
    assert info.started_at == pytest.approx(1795244600.92321)


def test_an_ended_docker_container() -> None:
    (info,) = answers.containers(json.dumps([DOCKER]))
    assert (info.name, info.state, info.pid, info.exit_code) == ("sparkdash-a", ContainerState.EXITED, None, 137)
    assert (info.labels, info.image) == ({}, "vllm/vllm-openai:v0.33.0")
    assert info.started_at == pytest.approx(1795244600.9232)


def test_start_times_and_states_of_other_versions() -> None:
    later = {**PODMAN, "State": {"Status": "Running", "StartedAt": 1795244600}}
    odd = {**PODMAN, "State": {"Status": "hibernating"}}
    infos = answers.containers(json.dumps([later, CREATED, odd]))
    assert [info.started_at for info in infos] == [1795244600.0, None, None]
    assert [info.state.value for info in infos] == ["running", "created", "unknown"]
    assert answers.containers("") == answers.containers("[]") == []


@pytest.mark.parametrize(
    ("complaint", "code", "hint"),
    [
        ("Error: localhost/a:1: image not known", "image_missing", "podman build"),
        ("docker: Error response from daemon: No such image: localhost/a:1.", "image_missing", "build"),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "no_gpu_device", "nvidia-ctk cdi"),
        ('Error response from daemon: could not select device driver "" with capabilities: [[gpu]].', "no_gpu_device", "cdi"),
        ("Error: crun: cannot stat `/lib64/libEGL_nvidia.so.580.95.05`: No such file or directory: OCI runtime attempted to invoke a command that was not found", "cdi_stale", "older than the driver"),
        ("Error: runc: stat /usr/lib/aarch64-linux-gnu/libcuda.so.580.95.05: no such file or directory", "cdi_stale", "nvidia-ctk cdi"),
        ("Error: rootlessport listen tcp 0.0.0.0:80: bind: address already in use", "port_in_use", "ss -ltnp"),
        ("Error: statfs /nope/x: no such file or directory", "mount_missing", "path"),
        ("invalid mount config for type \"bind\": bind source path does not exist: /x", "mount_missing", "path"),
        ("Error: runc: exec: \"/nope\": stat /nope: no such file or directory: OCI runtime attempted to invoke a command that was not found", "command_missing", "program"),
        ("Error: creating container storage: the container name \"n\" is already in use by 179. You have to remove that container to be able to reuse that name: that name is already in use", "name_taken", "ps -a"),
        ("Error: copying layer: write /x: no space left on device", "disk_full", "system df"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "runtime_missing", "apt-get"),
    ],
)  # fmt: skip
def test_complaints_are_classified(complaint: str, code: str, hint: str) -> None:
    error = answers.start_failed("podman", ANSWERED_SPEC, CommandResult(125, "", complaint))
    assert error.code == code
    assert hint in (error.hint or "")
    assert complaint.removeprefix("Error: ").split()[-1].strip(".") in error.message


def test_an_unknown_complaint_keeps_its_words() -> None:
    log = 'time="2026-11-21T07:03:20Z" level=warning msg="Error validating CNI config file"\n'
    said = log + "Error: something new " + "x" * 1000
    error = answers.start_failed("podman", ANSWERED_SPEC, CommandResult(125, "", said))
    assert error.code == "runtime_failed"
    assert "something new" in error.message
    assert "CNI" not in error.message
    assert len(error.message) < 500


@pytest.mark.parametrize("said", [
    "cannot clone: Permission denied\nError: cannot re-exec process", "Error: failed to reexec: Permission denied",
    'Error: command required for rootless mode with multiple IDs: exec: "newuidmap": executable file not found in $PATH',
])  # fmt: skip
def test_a_podman_that_cannot_be_rootless_leads_to_the_doctor(said: str) -> None:
    """Podman's own words name neither AppArmor nor a package; the doctor does."""
    error = answers.failed("podman", "ps", said)
    assert "sparkdash doctor podman" in (error.hint or "")
    assert answers.failed("podman", "ps", "Error: something new").hint is None


def test_what_a_start_lacks_is_told_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a CDI spec podman creates the container, and refuses at its start."""
    there, cdi = tmp_path / "models", tmp_path / "cdi"
    there.mkdir()
    monkeypatch.setattr(podman_host, "CDI_FOLDERS", (cdi,))
    spec = SPEC.replace(mounts=(Mount(source=str(there), target="/models"), Mount(source="volume", target="/v")))
    lacks = podman_host.lacking("podman", spec)
    assert (lacks.code, str(cdi) in lacks.message, "nvidia-ctk" in (lacks.hint or "")) == ("no_gpu_device", True, True)
    assert podman_host.lacking("docker", spec) is None
    cdi.mkdir()
    (cdi / "nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert podman_host.lacking("podman", spec) is None
    there.rmdir()
    gone = podman_host.lacking("podman", spec)
    assert (gone.code, str(there) in gone.message) == ("mount_missing", True)


@pytest.mark.parametrize(("entrypoint", "words", "fault"), [
    (["vllm", "serve"], ["/usr/bin/vllm", "serve", "m"], "begins with the same program again"),
    (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["vllm", "serve", "m"], "same program again"),
    (["/bin/bash"], ["vllm", "serve", "m"], "a shell that does not run"),
    (["/bin/sh", "-c", "serve-it"], ["--port", "1"], "a shell that does not run"),
    (None, ["--port", "1"], "has no entrypoint"), (None, [], "has no entrypoint"),
    (["/bin/sh", "-c", 'exec "$0" "$@"'], ["vllm", "serve", "m"], None),
    (["/opt/nvidia/nvidia_entrypoint.sh"], ["vllm", "serve", "m"], None),
    (["python3", "/wrap.py"], ["python3", "-m", "sglang.launch_server"], None), (None, ["vllm", "serve", "m"], None),
])  # fmt: skip
def test_an_entrypoint_that_swallows_the_command_is_refused(
    entrypoint: list[str] | None, words: list[str], fault: str | None
) -> None:
    found = answers.entrypoint_fault("an-image", json.dumps([entrypoint, None]), words)
    assert (found and (found.code, fault is not None and fault in found.message)) == (
        fault and ("command_missing", True)
    )


@pytest.mark.parametrize("printed", ["", "[null]", '{"a": 1}', '[["vllm"],{}]'])
def test_an_answer_of_another_shape_refuses_no_image(printed: str) -> None:
    assert answers.entrypoint_fault("an-image", printed, ["x"]) is None


@pytest.mark.parametrize("code", [-9, 137], ids=["here", "over ssh"])
def test_a_run_that_was_killed_tells_the_signal_and_is_a_failure_of_the_box(code: int) -> None:
    error = answers.start_failed("podman", ANSWERED_SPEC, CommandResult(code, "", ""))
    assert error.message == "`podman run` was ended by SIGKILL."
    assert error.code == "runtime_killed"
    assert "journalctl -k" in (error.hint or "")
    assert answers.failed("podman", "run", "", 1).message == "`podman run` failed: it said nothing."


def test_docker_is_heard_without_its_advice() -> None:
    said = "docker: Error response from daemon: No such image: x:1.\n\nRun 'docker run --help' for more information\n"
    assert answers.last_words(said) == "No such image: x:1"


@pytest.mark.parametrize(
    "words",
    [
        'choosing an image from manifest list docker://ghcr.io/a/b:1: no image found in image index for architecture arm64, variant "v8", OS linux',
        'choosing an image from manifest list docker://ghcr.io/a/b:1: no image found in manifest list for architecture arm64, variant "v8", OS linux',
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
    ],
)
def test_an_image_that_is_not_made_for_this_processor(words: str) -> None:
    error = answers.not_fetched("podman", "ghcr.io/a/b:1", words)
    assert words in error.message
    assert "linux/arm64" in (error.hint or "")
    assert "registry" not in (error.hint or "")


def test_process_ids_of_top() -> None:
    assert answers.pids("HPID\n9147\n?\n12\n") == {9147, 12}


@pytest.mark.parametrize(("inspected", "gpu"), [
    ({"Config": {"CreateCommand": ["podman", "run", "--device", "nvidia.com/gpu=all", "x"]}}, True),
    ({"Config": {"CreateCommand": ["podman", "run", "--gpus=all", "x"]}}, True),
    ({"HostConfig": {"Devices": [{"PathOnHost": "/dev/nvidia0"}]}}, True),
    ({"HostConfig": {"DeviceRequests": [{"Driver": "", "Count": -1}]}}, True),
    ({"HostConfig": {"Devices": [{"PathOnHost": "/dev/fuse"}], "DeviceRequests": None}}, False), ({}, False),
])  # fmt: skip
def test_a_container_that_was_given_a_gpu(inspected: dict[str, Any], gpu: bool) -> None:
    (found,) = answers.containers(json.dumps([{"Id": "1", "Name": "n", **inspected}]))
    assert found.gpu is gpu


def test_the_ports_that_a_container_publishes() -> None:
    bindings = {"80/tcp": [{"HostIp": "", "HostPort": "18005"}, {"HostIp": "::", "HostPort": "18005"}], "81/tcp": None}
    (found,) = answers.containers(json.dumps([{"Id": "1", "Name": "n", "HostConfig": {"PortBindings": bindings}}]))
    assert found.ports == (18005,)


STRAY = """
import subprocess, sys
print(subprocess.Popen(sys.argv[1:], executable=sys.executable, stdout=2, start_new_session=True).pid)
"""
"""A daemon that begins a command and is gone."""


async def test_commands_of_a_daemon_that_is_gone_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier `run` is still under way: only its end brings an answer; one that hangs is ended."""
    monkeypatch.setattr(podman_host, "SETTLE_S", 0.2)
    (tmp_path / "run").write_text("import signal; signal.pause()")
    words = ["podman", "run", "--label", "sparkdash.owner=settle-test", "image"]
    told = subprocess.run([sys.executable, "-S", "-c", STRAY, *words], cwd=tmp_path, stdout=subprocess.PIPE, check=True)  # noqa: ASYNC221 - a moment
    stray = os.pidfd_open(int(told.stdout))
    left = await Podman().settle("settle-test")
    assert (left.ended, left.stuck) == ((), ())
    assert select.select([stray], [], [], 60)[0] == [stray]
    os.close(stray)


async def test_a_start_of_this_daemon_s_own_is_no_stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that is asked again what is there may be at a start that takes minutes: it was ended."""
    monkeypatch.setattr(podman_host, "SETTLE_S", 0.0)
    (tmp_path / "run").write_text("import sys; sys.stdin.read()")
    words = ["podman", "run", "--label", "sparkdash.owner=settle-test", "image"]
    own = subprocess.Popen(words, executable=sys.executable, cwd=tmp_path, stdin=subprocess.PIPE)  # noqa: ASYNC220 - it is to outlive the call
    await Podman().settle("settle-test")
    assert own.poll() is None
    own.communicate()
    assert own.returncode == 0


SECRET = "hf_notarealtokenbutlongenough"


def spec(monkeypatch: pytest.MonkeyPatch) -> ContainerSpec:
    """The dialect's spec of a profile that hands HF_TOKEN on, while the daemon has one."""
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


async def test_a_process_inherits_it_unseen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = spec(monkeypatch)
    assert SECRET not in " ".join(await Process(tmp_path).command(made))
    assert SECRET not in made.model_dump_json()


def test_handing_a_variable_on_is_another_launch() -> None:
    plain = Profile(name="a", engine=EngineKind.VLLM)
    assert plain.fingerprint == plain.replace(env_from=()).fingerprint
    assert plain.fingerprint != plain.replace(env_from=("HF_TOKEN",)).fingerprint


@pytest.mark.parametrize("program", ["podman", "docker"])
def test_a_literal_secret_is_not_on_the_command_line_either(program: str) -> None:
    """Where its owner silenced the rule: the runtime gets it in its environment, which `ps` does not show."""
    made = ContainerSpec(name="a", image="i", argv=("x",), port=1, labels={}, env={"HF_TOKEN": SECRET, "A": "1"})
    words = argv.run(program, made)
    assert SECRET not in argv.shell(words)
    assert words[words.index("HF_TOKEN") - 1] == "-e"
    assert "A=1" in words
    assert argv.environment(made) == {"HF_TOKEN": SECRET}


async def test_a_process_prints_it_masked(tmp_path: Path) -> None:
    made = ContainerSpec(name="a", image=None, argv=("x",), port=1, labels={}, env={"HF_TOKEN": SECRET, "A": "1"})
    assert await Process(tmp_path).command(made) == ["env", "HF_TOKEN=***", "A=1", "x"]
