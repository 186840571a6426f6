"""Real podman and docker: what containers have and processes have not."""

import asyncio
import contextlib
import json
import subprocess
import time
from typing import Any

import httpx
import psutil
import pytest

from sparkdash.domain.container import LABEL_OWNER, ContainerState
from sparkdash.domain.profile import Mount
from sparkdash.errors import HostError
from sparkdash.host import command
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import argv

pytestmark = pytest.mark.podman

STAY = "sleep 300 & wait"


def commands_running(program: str) -> list[str]:
    """Commands of podman or docker that this process has not ended."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # another's, which ends while it is looked at
            found += [" ".join(child.cmdline())] if child.name() == program else []
    return found


async def test_images(container_ground: Any) -> None:
    """One that was built is here; one that nobody has is not."""
    assert await container_ground.runtime.image_id(container_ground.image)
    assert await container_ground.runtime.image_id("localhost/sparkdash-test-nobody:1") is None


async def test_an_image_that_is_missing(container_ground: Any) -> None:
    """Nothing is pulled behind one's back: the start fails at once and says how to get the image."""
    spec = container_ground.spec(STAY, image="localhost/sparkdash-test-nobody:1")
    with pytest.raises(HostError, match="localhost/sparkdash-test-nobody:1") as caught:
        await container_ground.runtime.start(spec)
    assert caught.value.code == "image_missing"
    assert f"{container_ground.runtime.name} build" in (caught.value.hint or "")
    assert await container_ground.runtime.inspect(spec.name) is None


async def test_a_pull_from_a_registry_that_is_not_there(container_ground: Any) -> None:
    """Steps, then an error with the program's own words."""
    steps = container_ground.runtime.pull("localhost:9/nobody/nothing:1")
    first = await anext(steps)
    assert (first.fraction, first.done) == (None, False)
    with pytest.raises(HostError) as caught:
        _ = [step async for step in steps]
    assert caught.value.code == "image_missing"
    assert "localhost:9" in caught.value.message


async def test_no_gpu(container_ground: Any) -> None:
    """A device that nobody can resolve: how to make it known; no half-made container stays."""
    spec = container_ground.spec(STAY, devices=("nvidia.com/gpu=sparkdash-test-none",))
    with pytest.raises(HostError, match=spec.name) as caught:
        await container_ground.runtime.start(spec)
    assert caught.value.code == "no_gpu_device"
    cure = {"podman": "nvidia-ctk cdi generate", "docker": "nvidia-ctk runtime configure --runtime=docker"}
    assert cure[container_ground.runtime.name] in (caught.value.hint or "")
    assert await container_ground.runtime.inspect(spec.name) is None


async def test_mounts(container_ground: Any) -> None:
    """A missing model folder is an error that names it; a missing cache folder is made."""
    folder = container_ground.folder
    model = Mount(source=str(folder / "no-model"), target="/model")
    cache = Mount(source=str(folder / "cache/new"), target="/cache", read_only=False)
    with pytest.raises(HostError, match="no-model") as caught:
        await container_ground.runtime.start(container_ground.spec(STAY, mounts=(model,)))
    assert caught.value.code == "mount_missing"
    spec = container_ground.spec("echo hello > /cache/file", mounts=(cache,))
    await container_ground.runtime.start(spec)
    assert await container_ground.runtime.wait(spec.name) == 0
    assert (folder / "cache/new/file").read_text() == "hello\n"


async def test_a_stranger_with_our_name_is_left_alone(container_ground: Any) -> None:
    """A container that this daemon did not start is never replaced."""
    spec = container_ground.spec(STAY)
    stranger = spec.model_copy(update={"labels": {**spec.labels, LABEL_OWNER: "another-daemon"}})
    first = await container_ground.runtime.start(stranger)
    with pytest.raises(HostError, match=spec.name) as caught:
        await container_ground.runtime.start(spec)
    assert caught.value.code == "name_taken"
    assert (await container_ground.runtime.inspect(spec.name)).id == first.id
    await container_ground.runtime.stop(spec.name, grace_s=0)


async def test_what_the_container_got(container_ground: Any) -> None:
    """Shared memory, tmpfs, this box's network, no restart policy, a bounded log: as the program itself reports them."""
    spec = container_ground.spec(STAY, shm_size="64m", tmpfs=("/scratch:size=1m",))
    await container_ground.runtime.start(spec)
    out = await asyncio.to_thread(subprocess.check_output, [container_ground.runtime.name, "inspect", spec.name])
    host = json.loads(out)[0]["HostConfig"]
    assert host["ShmSize"] == 64 << 20
    assert "/scratch" in host["Tmpfs"]
    assert (host["NetworkMode"] == "host") != bool(host["PortBindings"])
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert host["AutoRemove"] is False
    assert host["LogConfig"]["Type"] in ("k8s-file", "json-file")


IO_URING = "import ctypes as c; print(c.CDLL(None).syscall(425, 4, c.create_string_buffer(256)) >= 0)"
"""Whether io_uring_setup succeeds; its number is the same everywhere."""


async def test_io_uring_is_there_for_those_who_ask_and_no_others(container_ground: Any) -> None:
    """By podman's profile and three calls more, made at the start. Docker before 25 gave it to all.

    The kernel of this box must have it.
    """
    python = "/usr/bin/python3"
    here = await asyncio.to_thread(subprocess.check_output, [python, "-c", IO_URING], text=True)
    if here != "True\n":
        pytest.skip("this kernel refuses io_uring")
    system = tuple(Mount(source=f"/usr{path}", target=path) for path in ("/lib", "/lib64"))
    files = (Mount(source="/usr", target="/usr"), *system)
    told = {}
    for name, seccomp in (("plain", None), ("asks", str(container_ground.folder / "made" / "seccomp.json"))):
        spec = container_ground.spec("", name, argv=(python, "-c", IO_URING), mounts=files, seccomp=seccomp)
        await container_ground.runtime.start(spec)
        await container_ground.runtime.wait(spec.name)
        told[name] = [line async for line in container_ground.runtime.logs(spec.name, follow=False)]
    runtime = container_ground.runtime
    gives_all = runtime.name == "docker" and int((await runtime.version()).partition(".")[0]) < 25
    assert told == {"plain": [str(gives_all)], "asks": ["True"]}


async def test_an_engine_that_listens_on_loopback_is_reached_at_its_port(container_ground: Any) -> None:
    """Also in docker's rootless mode, where the host network is not this box's."""
    folder, listening = container_ground.folder, f"127.0.0.1:{container_ground.spec('').port}"
    (folder / "answer").write_text("yes")
    await container_ground.runtime.start(container_ground.spec(f"exec httpd -f -p {listening} -h {folder}"))
    async with asyncio.timeout(60), httpx.AsyncClient() as http:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(f"http://{listening}/answer")).text == "yes":
                    break


async def test_the_printed_command_works_when_pasted(container_ground: Any) -> None:
    """The command of --dry-run starts the same container in a shell."""
    spec = container_ground.spec("echo 'it is \"quoted\"'; sleep 300 & wait")
    text = argv.shell(await container_ground.runtime.command(spec))
    await asyncio.to_thread(subprocess.run, ["sh", "-c", text], check=True, capture_output=True)
    info = await container_ground.runtime.inspect(spec.name)
    assert info.state is ContainerState.RUNNING
    assert [line async for line in container_ground.runtime.logs(spec.name, follow=False)] == ['it is "quoted"']


def child_of(pid: int | None) -> psutil.Process:
    """The first child of a shell, once it has begun one."""
    while not (children := psutil.Process(pid).children()):
        time.sleep(0.01)
    return children[0]


async def test_the_kernel_is_asked_where_it_knows_as_much(
    container_ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call starts a container, none tells its processes, and one tells its exit code once the kernel has told its end."""
    calls: list[str] = []

    async def call(argv: list[str], **how: Any) -> CommandResult:
        calls.append(argv[1])
        return await made(argv, **how)

    made = command.run_command
    monkeypatch.setattr(command, "run_command", call)
    runtime, spec = container_ground.runtime, container_ground.spec("trap 'exit 3' TERM; sleep 300 & wait")
    info = await runtime.start(spec)
    await asyncio.to_thread(child_of, info.pid)
    pids = await runtime.pids(spec.name)
    waiter = asyncio.ensure_future(runtime.wait(spec.name))
    started = ["info", "run"] if runtime.name == "docker" else ["run"]
    assert calls == started
    top = argv.top(runtime.name, spec.name)
    told = await asyncio.to_thread(subprocess.check_output, top, text=True)
    assert info.pid in pids
    assert {int(pid) for pid in told.split()[1:]} <= pids  # `top` may have added a process of its own meanwhile
    psutil.Process(info.pid).send_signal(15)
    assert await waiter == 3
    assert calls == [*started, "wait"]


async def test_listeners_that_leave_take_their_program_along(container_ground: Any) -> None:
    """A log that is no longer followed and a cancelled wait leave none behind; waiting needs none while the engine runs."""
    program = container_ground.runtime.name
    spec = container_ground.spec(f"echo tick; {STAY}")
    await container_ground.runtime.start(spec)
    log = container_ground.runtime.logs(spec.name, follow=True)
    assert await anext(log) == "tick"
    waiter = asyncio.ensure_future(container_ground.runtime.wait(spec.name))
    await container_ground.runtime.version()
    assert [words.split(program)[1:] for words in commands_running(program)] == [
        " ".join(argv.logs(program, spec.name, follow=True, tail=None)).split(program)[1:]
    ]
    await log.aclose()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert commands_running(program) == []
