"""The podman runtime against stand-ins for the program: what real podman does rarely, and docker, which is not here."""

import asyncio
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from sparkdash.domain.container import LABEL_HEAD, LABEL_OWNER, LABEL_PROFILE, ContainerSpec, PullProgress
from sparkdash.domain.profile import Mount
from sparkdash.errors import HostError
from sparkdash.host import command
from sparkdash.host.podman import podman
from sparkdash.host.podman.podman import Podman

Program = Callable[[str, str], Path]

SPEC = ContainerSpec(
    name="n", image="i:1", argv=("serve",), port=1, labels={LABEL_PROFILE: "a", LABEL_OWNER: "me"}
)  # fmt: skip
OURS = '[{"Id": "1", "Name": "/n", "State": {"Status": "running", "Pid": 5}, "Config": {"Labels": {"sparkdash.profile": "a", "sparkdash.owner": "me"}}}]'


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], bool]], None]:
    """A function that gives up soon on calls whose verb it is told of; others may be as slow as a busy machine makes them."""

    def limit(hangs: Callable[[str], bool]) -> None:
        async def call(words: list[str], *, deadline_s: float | None, **more: Any) -> command.CommandResult:
            return await run(words, deadline_s=0.3 if hangs(words[1]) else deadline_s, **more)

        run = command.run_command
        monkeypatch.setattr(command, "run_command", call)

    return limit


async def test_podman_that_hangs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program("podman", "exec sleep 60")
    monkeypatch.setattr(podman, "LOOK_S", 0.3)
    with refused("runtime_timeout", "`podman inspect` gave no answer") as caught:
        await Podman().inspect("n")
    assert re.search(r"Then [\d.]+ GiB of [\d.]+ GiB of memory were available", caught.value.hint or "")


IMAGES = """
[ "$2" = inspect ] || exit 9
echo '[7,["docker.io/vllm/vllm-openai:v1","localhost/own:latest"],["docker.io/vllm/vllm-openai@sha256:abc"]]'
echo "Error: inspecting object: nosuch:1: image not known" >&2; exit 125
"""


async def test_all_images_are_asked_for_in_one_call(program: Program) -> None:
    calls = program("podman", IMAGES)
    names = ["vllm/vllm-openai:v1", "localhost/own", "vllm/vllm-openai@sha256:abc", "nosuch:1", "vllm-openai:v2"]
    assert await Podman().images(names) == dict.fromkeys(names[:3], 7)
    assert await Podman().images([]) == {}
    assert len(calls.read_text().splitlines()) == 1


async def test_a_runtime_that_is_ill_does_not_say_that_images_are_missing(program: Program) -> None:
    program("podman", 'echo "Error: database is locked" >&2; exit 125')
    with pytest.raises(HostError, match="database is locked"):
        await Podman().images(["a:1"])


async def test_a_stop_that_hangs_is_followed_by_force(program: Program, impatient: Any) -> None:
    """Older podmans hang in stop; the container is removed by force all the same."""
    calls = program("podman", '[ "$1" = stop ] && exec sleep 60; exit 0')
    impatient(lambda verb: verb == "stop")
    await Podman().stop("n", grace_s=0)
    assert calls.read_text().splitlines()[-1] == "rm --force --volumes -t 0 n"


async def test_dockers_rootless_mode_publishes_an_engines_port(program: Program) -> None:
    """The host network is RootlessKit's there; across boxes an engine is refused, before anything is stopped for it."""
    rootless = '[ "$1" = info ] && echo "[name=seccomp,profile=default name=rootless]"'
    calls = program("docker", f"{rootless}; [ $1 = inspect ] && echo '{OURS}'; exit 0")
    spec = SPEC.replace(argv=("serve", "--host", "127.0.0.1"), env={"OLLAMA_HOST": "127.0.0.1:1"}, port=8000)
    await Podman("docker").start(spec)
    (started,) = [line for line in calls.read_text().splitlines() if line.startswith("run ")]
    assert "--publish 127.0.0.1:8000:8000" in started
    assert "--network" not in started
    assert "OLLAMA_HOST=0.0.0.0:1" in started
    assert started.endswith("i:1 --host 0.0.0.0")
    for part in (spec.replace(workers=(SPEC,)), spec.replace(labels={**spec.labels, LABEL_HEAD: "n"})):
        with pytest.raises(HostError, match="rootless mode") as caught:
            await Podman("docker").check_start(part)
        assert 'runtime = "podman"' in (caught.value.hint or "")
    told = await Podman("docker").command(spec.replace(inner_port=80))
    assert "127.0.0.1:8000:80" in told


@pytest.mark.parametrize("name", ["podman", "docker"])
async def test_a_container_of_ours_with_the_name_is_removed_once_it_is_in_the_way(
    program: Program, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nearly always there is none, so that nobody looks before; and `--replace` would remove a stranger's."""
    taken = 'Error response from daemon: Conflict. The container name "/n" is already in use by container "1".'
    script = f"""
case "$1" in
  run) [ -e removed ] || {{ echo '{taken}' >&2; exit 125; }} ;;
  inspect) echo '{OURS}' ;;
  rm) touch removed ;;
esac"""
    calls = program(name, script)
    monkeypatch.chdir(calls.parent)
    assert (await Podman(name).start(SPEC)).id == "1"
    verbs = [verb for verb, *_ in map(str.split, calls.read_text().splitlines()) if verb != "info"]
    assert verbs == ["run", "inspect", "rm", "run", "inspect"]
    assert "--replace" not in calls.read_text()


async def test_a_stranger_is_not_removed_where_a_start_fails(program: Program) -> None:
    stranger = OURS.replace('"me"', '"another"')
    script = f"""
case "$1" in
  run) echo "Error: no space left on device" >&2; exit 125 ;;
  inspect) echo '{stranger}' ;;
esac"""
    calls = program("podman", script)
    with refused("disk_full"):
        await Podman().start(SPEC)
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["run", "inspect"]


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
async def test_a_box_that_cannot_start_podman_is_not_told_to_install_it(
    program: Program, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for another process, no descriptor: podman is there, and the box's trouble passes."""
    program("podman", "echo 5.0")

    async def begin(*_: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
    with pytest.raises(HostError, match=f"cannot be started: {os.strerror(number)}") as caught:
        await Podman().version()
    assert (caught.value.code, "apt-get" in (caught.value.hint or "")) == ("host_not_ready", False)


async def test_docker_daemon_that_does_not_run(program: Program) -> None:
    program("docker", 'echo "Cannot connect to the Docker daemon at unix:///x. Is it running?" >&2; exit 1')
    for ask in (Podman("docker").version(), Podman("docker").image_id("i:1"), Podman("docker").containers({})):
        with refused("runtime_missing"):
            await ask


async def test_pull_tells_what_it_does(program: Program) -> None:
    program("podman", "echo 'Trying to pull i:1...' >&2; echo 'Copying blob sha256:ab' >&2; echo 1234")
    steps = [step async for step in Podman().pull("i:1")]
    assert [step.detail for step in steps[:2]] == ["Trying to pull i:1...", "Copying blob sha256:ab"]
    assert {step.fraction for step in steps[:-1]} == {None}
    assert steps[-1] == PullProgress(image="i:1", detail="pulled", fraction=1.0, done=True)


@pytest.mark.parametrize(("words", "hint"), [
    ("unauthorized: log in", "podman login nvcr.io"), ("lookup nvcr.io: no such host", "reaches that registry"),
])  # fmt: skip
async def test_pull_that_fails(program: Program, words: str, hint: str) -> None:
    program("podman", f"echo 'Trying to pull nvcr.io/x:1...'; echo 'Error: {words}' >&2; exit 125")
    with refused("image_missing") as caught:
        async for _ in Podman().pull("nvcr.io/x:1"):
            pass
    assert caught.value.message == f"podman could not fetch nvcr.io/x:1: {words}."
    assert hint in (caught.value.hint or "")


async def test_a_spec_without_an_image() -> None:
    with pytest.raises(HostError, match="has no image"):
        await Podman().command(SPEC.model_copy(update={"image": None}))


async def test_a_writable_mount_that_cannot_be_made(program: Program, tmp_path: Path) -> None:
    program("podman", "[ $1 = inspect ] && echo '[]'; exit 0")
    (tmp_path / "file").write_text("")
    mount = Mount(source=str(tmp_path / "file/cache"), target="/c", read_only=False)
    spec = SPEC.model_copy(update={"mounts": (mount,)})
    for begin in (Podman().check_start, Podman().start):
        with refused("mount_missing", "file/cache"):
            await begin(spec)


@pytest.mark.parametrize("hangs", ["run", "inspect"])
async def test_a_start_that_hangs_leaves_nothing_behind(
    program: Program, monkeypatch: pytest.MonkeyPatch, impatient: Any, hangs: str
) -> None:
    """A container may be half made, or run, when podman stops answering: it is removed, and the reason is podman's silence."""
    script = f"""
case "$1" in
  {hangs}) exec sleep 60 ;;
  inspect) echo '{OURS}' ;;
esac
exit 0"""
    calls = program("podman", script)
    impatient(lambda verb: verb == hangs)
    with refused("runtime_timeout"):
        await Podman().start(SPEC)
    assert calls.read_text().splitlines()[-1] == "rm --force --volumes -t 0 n"


async def test_a_failed_start_whose_rest_cannot_be_removed_tells_why_it_failed(program: Program) -> None:
    """The first reason is the one that a person can fix."""
    script = """
case "$1" in
  run) echo "Error: no space left on device" >&2; exit 125 ;;
  inspect) echo "Error: no such container" >&2; exit 1 ;;
  rm) echo "Error: database is locked" >&2; exit 125 ;;
esac"""
    program("podman", script)
    with refused("disk_full"):
        await Podman().start(SPEC)


async def test_a_wait_that_answers_nothing(program: Program) -> None:
    program("podman", "exit 0")
    with pytest.raises(HostError, match="`podman wait` failed"):
        await Podman().wait("n")


async def test_a_podman_that_went_away_before_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade replaces the program: a HostError like every other call's."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused("runtime_missing"):
        async for _ in Podman().logs("n", follow=True):
            pass


async def test_a_word_that_no_program_can_be_given(program: Program) -> None:
    program("podman", '[ "$1" = inspect ] && { echo "Error: no such container" >&2; exit 1; }; exit 0')
    with pytest.raises(HostError, match="null byte"):
        await Podman().start(SPEC.model_copy(update={"argv": ("serve", "a\0b")}))
