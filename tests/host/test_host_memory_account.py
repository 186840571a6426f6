"""The account as it is read: fake and real /proc, runtimes that hang, processes that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerState
from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Gpu
from sparkdash.errors import HostError
from sparkdash.host.box import NOTHING, GpuReading, Nvml
from sparkdash.host.memory import account
from sparkdash.host.memory.account import Sources, account_for_memory
from sparkdash.host.memory.account_division import ProcessMemory
from sparkdash.units import GIB, KIB, MIB

ID = "0123456789abcdef" * 4
OWNER = "me"
NOBODY = 65534
LIVE = "import os, time; os.setuid({uid}); held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); print('up', flush=True); time.sleep(60)"


MEMINFO = """\
MemTotal:       127600748 kB
MemFree:         2904064 kB
MemAvailable:   24525952 kB
Buffers:           81240 kB
Cached:         23477376 kB
Shmem:           1048576 kB
SReclaimable:    2097152 kB
"""


class FakeRuntime:
    """A runtime that lists these containers, or hangs."""

    name = "podman"

    def __init__(self, *containers: ContainerInfo, hangs: bool = False) -> None:
        self._containers = list(containers)
        self._hangs = hangs

    async def containers(self, _labels: object) -> list[ContainerInfo]:
        if self._hangs:
            await asyncio.Event().wait()
        return self._containers


async def no_gpu() -> GpuReading:
    return NOTHING


def sources(proc: Path, **changes: Any) -> Sources:
    """A look at a fake /proc, with nothing else on the box."""
    given = {"runtime": FakeRuntime(), "gpu": no_gpu, "owner": OWNER, "ours": frozenset[int](), "uid": 1000}
    return Sources(**{**given, "proc": proc, "passwd": proc.parent / "nothing", **changes})


def add(
    proc: Path, pid: int, name: str = "python3", anonymous: int = 0, shared: int = 0, cgroup: str = "0::/", **more: Any
) -> Path:
    """Add a process; sizes in kB."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "status").write_text(
        f"Name:\t{name}\nState:\t{more.get('state', 'S')} (x)\nPPid:\t{more.get('parent', 1)}\nUid:\t{more.get('uid', 1000)}\t0\t0\t0\n"
        f"RssAnon:\t{anonymous} kB\nRssShmem:\t{shared} kB\nVmSwap:\t{more.get('swap', 0)} kB\n"
    )
    (folder / "cgroup").write_text(cgroup)
    return folder


def row(found: MemoryAccount, name: str) -> Holding:
    return next(one for one in found.holdings if one.name == name)


def adds_up(found: MemoryAccount) -> bool:
    return sum(one.bytes for one in found.holdings) == found.total


def container(name: str, **changes: Any) -> ContainerInfo:
    return ContainerInfo(**{"id": ID, "name": name, "state": ContainerState.RUNNING, **changes})


async def test_a_gb10_with_an_engine_a_container_and_a_desktop(gb10_proc: Path, gb10_nvml: Any) -> None:
    """NVML's figure and the host memory in one row; names as the runtime tells them; users from the box's own file."""
    meminfo = gb10_proc / "meminfo"  # room for what the GPU has, which the page cache of the fixture leaves short
    meminfo.write_text(meminfo.read_text().replace("53477376", "43477376"))
    add(gb10_proc, 20, "uvicorn", 2 * GIB // KIB, cgroup=f"0::/system.slice/docker-{ID}.scope")
    add(gb10_proc, 9, "Xorg", 100_000, cgroup="0::/system.slice/gdm.service", uid=0)
    add(gb10_proc, 31, "make", 300_000, swap=5000)
    (gb10_proc.parent / "passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbroken\n"
    )
    webui = container("open-webui", image="webui:1")
    given = sources(
        gb10_proc,
        runtime=FakeRuntime(webui),
        gpu=Nvml(gb10_nvml.open).read,
        engines={"qwen": {4242}},
        passwd=gb10_proc.parent / "passwd",
    )
    found = await account_for_memory(given)
    assert adds_up(found)
    assert (found.gpu, found.gpu_told) == (GpuMemory.UNIFIED, False)  # of pid 7 the driver tells no figure
    assert row(found, "qwen").bytes == 63931 * MIB + (3145728 + 1024) * KIB
    assert (row(found, "open-webui").bytes, row(found, "open-webui").remedy) == (2 * GIB, "podman stop open-webui")
    assert row(found, "gdm.service").bytes == 100_000 * KIB + 50 * MIB
    make = row(found, "make")
    assert (make.user, make.swap_bytes, make.remedy) == ("alice", 5000 * KIB, "kill 31")


async def test_our_engines_are_known_without_the_daemon(gb10_proc: Path) -> None:
    """By the labels that the runtime tells; a container of the same name of another owner is a container."""
    other = "f" * 64
    add(gb10_proc, 20, anonymous=GIB // KIB, cgroup=f"0::/libpod-{ID}.scope")
    add(gb10_proc, 21, anonymous=GIB // KIB, cgroup=f"0::/libpod-{other}.scope")
    labels = {LABEL_OWNER: OWNER, LABEL_PROFILE: "qwen"}
    runtime = FakeRuntime(
        container("sparkdash-qwen", labels=labels),
        container("sparkdash-qwen", id=other, labels={**labels, LABEL_OWNER: "other"}),
    )
    found = await account_for_memory(sources(gb10_proc, runtime=runtime))
    assert row(found, "qwen").kind is Holder.ENGINE
    assert row(found, "sparkdash-qwen").kind is Holder.CONTAINER


async def test_a_runtime_that_hangs_costs_names_only(gb10_proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its limit the containers have their short ids."""
    monkeypatch.setattr(account, "RUNTIME_S", 0.05)
    add(gb10_proc, 20, anonymous=GIB // KIB, cgroup=f"0::/libpod-{ID}.scope")
    found = await account_for_memory(sources(gb10_proc, runtime=FakeRuntime(hangs=True)))
    assert row(found, ID[:12]).bytes == GIB


async def test_another_runtime_is_asked_for_its_own_names(gb10_proc: Path, program: Callable[[str, str], Path]) -> None:
    """docker beside podman; one that hangs costs its names."""
    add(gb10_proc, 20, anonymous=GIB // KIB, cgroup=f"0::/system.slice/docker-{ID}.scope")
    calls = program("docker", f"printf '{ID}\\topen-webui\\twebui:1\\nrubbish\\n'")
    assert row(await account_for_memory(sources(gb10_proc)), "open-webui").remedy == "docker stop open-webui"
    assert calls.read_text().startswith("ps --no-trunc")


async def test_another_runtime_that_hangs(
    gb10_proc: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The containers keep their short ids."""
    monkeypatch.setattr(account, "RUNTIME_S", 0.05)
    add(gb10_proc, 20, anonymous=GIB // KIB, cgroup=f"0::/system.slice/docker-{ID}.scope")
    program("docker", "exec sleep 60")
    assert row(await account_for_memory(sources(gb10_proc)), ID[:12]).bytes == GIB


async def test_processes_that_vanish_or_are_rubbish_are_left_out(gb10_proc: Path) -> None:
    """A folder without a status, a kernel thread, a zombie, a link to nowhere."""
    (gb10_proc / "50").mkdir()
    (gb10_proc / "51").mkdir()
    (gb10_proc / "51/status").write_text("Name:\tkthreadd\nPPid:\t0\n")
    (gb10_proc / "52").mkdir()
    (gb10_proc / "52/status").write_bytes(b"Name:\t\xff\xfe\nRssAnon:\t12 kB\n")
    (gb10_proc / "53").symlink_to("nowhere")
    found, _ = account.read_processes(gb10_proc)
    assert sorted(one.pid for one in found) == [52, 4242]
    assert adds_up(await account_for_memory(sources(gb10_proc)))


async def test_a_box_that_tells_no_memory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        await account_for_memory(sources(tmp_path))
    assert caught.value.code == "no_meminfo"


async def test_five_thousand_processes_take_seconds_at_most(gb10_proc: Path) -> None:
    """On a disk, with the loop free: /proc answers quicker."""
    for pid in range(10_000, 15_000):
        add(gb10_proc, pid, f"p{pid % 97}", 100, cgroup=f"0::/system.slice/s{pid % 61}.service")
    began = time.thread_time(), time.monotonic()
    found = await account_for_memory(sources(gb10_proc))
    assert time.monotonic() - began[1] < 5
    assert time.thread_time() - began[0] < 1  # the loop itself is free: the walk has a thread
    assert adds_up(found)
    assert sum(one.processes or 0 for one in found.holdings if one.kind is Holder.UNIT) == 5000


# this box -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def holding(size: int, uid: int) -> Iterator[int]:
    """A process of that user's that holds so much; its pid."""
    with subprocess.Popen([sys.executable, "-c", LIVE.format(size=size, uid=uid)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield child.pid
        finally:
            child.kill()


async def test_this_box_adds_up() -> None:
    """The real /proc: every byte has a holder, and this process is one of ours."""
    found = await account_for_memory(Sources(runtime=FakeRuntime(), gpu=no_gpu, owner=OWNER))  # type: ignore[arg-type]
    assert adds_up(found)
    assert found.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert any(one.kind is Holder.SPARKDASH and one.bytes > MIB for one in found.holdings)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_a_process_of_another_user_is_named_with_its_user(tmp_path: Path) -> None:
    """400 MiB under another uid, seen through the real /proc."""
    passwd = tmp_path / "passwd"
    passwd.write_text(f"stranger:x:{NOBODY}:{NOBODY}::/:/bin/sh\n")
    given = Sources(  # type: ignore[arg-type]
        runtime=FakeRuntime(), gpu=no_gpu, owner=OWNER, passwd=passwd, ours=frozenset(), uid=1
    )
    with holding(400 * MIB, NOBODY) as pid:
        found = await account_for_memory(given)
    theirs = next(one for one in found.holdings if one.pid == pid)
    assert (theirs.user, theirs.remedy) == ("stranger", f"sudo kill {pid}")
    # pages that forks share count in each, as those of other tests' programs do, and scale every share down: 360 of
    # 400 MiB were seen beside six workers
    assert 200 * MIB < theirs.bytes < 440 * MIB


def test_hidden_processes_are_counted_as_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=1 they are listed and not told."""
    add(tmp_path, 5)

    def refuse(_path: str) -> bytes:
        raise PermissionError

    monkeypatch.setattr(account, "_text", refuse)
    assert account.read_processes(tmp_path) == ((), 1)


class BusyGpu:
    """A driver that is being asked by others at first."""

    def __init__(self, empty: int) -> None:
        self.empty = empty

    async def gpu(self) -> GpuReading:
        self.empty -= 1
        return NOTHING if self.empty >= 0 else GpuReading(Gpu(name="NVIDIA GB10"), {4242: GIB})


async def test_a_driver_that_others_ask_is_asked_again(gb10_proc: Path) -> None:
    """A tick of telemetry takes milliseconds; one that stays silent is called so, and a box without a driver has no GPU."""
    (gb10_proc / "driver/nvidia").mkdir(parents=True)
    (gb10_proc / "driver/nvidia/version").write_text("580")
    assert (await account_for_memory(sources(gb10_proc, gpu=BusyGpu(2).gpu))).gpu is GpuMemory.UNIFIED
    assert (await account_for_memory(sources(gb10_proc, gpu=BusyGpu(99).gpu))).gpu is GpuMemory.SILENT
    (gb10_proc / "driver/nvidia/version").unlink()
    assert (await account_for_memory(sources(gb10_proc, gpu=BusyGpu(2).gpu))).gpu is GpuMemory.NONE


@pytest.mark.parametrize(
    ("own", "where"), [(None, GpuMemory.UNIFIED), (127_600_748 * KIB, GpuMemory.UNIFIED), (24 * GIB, GpuMemory.OWN)]
)
async def test_where_the_gpus_memory_is(gb10_proc: Path, own: int | None, where: GpuMemory) -> None:
    """A GB10 tells none, or the system's as its own; a card tells its own."""

    async def card() -> GpuReading:
        return GpuReading(Gpu(name="x"), {4242: GIB}, own)

    assert (await account_for_memory(sources(gb10_proc, gpu=card))).gpu is where


GROUPS = st.sampled_from(
    [
        "",
        "0::/",
        "garbage",
        f"0::/machine.slice/libpod-{ID}.scope/container",
        f"12:memory:/docker/{'e' * 64}\n0::/",
        "0::/system.slice/ssh.service",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-7.scope",
        "0::/user.slice/user-1000.slice/session-3.scope",
        "1:name=systemd:/\xff/\x1b[2J.service",
    ]
)
KIBS = st.integers(0, 1 << 30)
TREES = st.dictionaries(
    st.integers(2, 60),
    st.fixed_dictionaries(
        {
            "name": st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=15),
            "anonymous": KIBS,
            "shared": KIBS,
            "swap": KIBS,
            "cgroup": GROUPS,
            "uid": st.integers(0, 1 << 32),
            "parent": st.integers(0, 61),
            "state": st.sampled_from("SRDZT"),
        }
    ),
    max_size=25,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES, gone=st.sets(st.integers(2, 60)), gpu=st.none() | st.dictionaries(st.integers(2, 70), KIBS))
async def test_any_tree_of_processes_adds_up(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[int, Any], gone: set[int], gpu: dict[int, int] | None
) -> None:
    """Families in circles, names of anybody's, processes that go between listing and reading: each byte has one holder."""
    proc = tmp_path_factory.mktemp("tree") / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text(f"{MEMINFO}AnonPages: 9437184 kB\nSUnreclaim: 900000 kB\n")
    for pid, told in tree.items():
        folder = add(proc, pid, **told)
        if pid in gone:
            (folder / "status").unlink()

    async def told_gpu() -> GpuReading:
        return GpuReading(Gpu(name="NVIDIA GB10"), gpu)

    found = await account_for_memory(
        sources(proc, gpu=told_gpu, engines={"qwen": {5, 6, 99}}, runtime=FakeRuntime(container("web")))
    )
    assert adds_up(found)
    assert all(one.bytes >= 0 for one in found.holdings)
    assert sum(one.processes or 0 for one in found.holdings) <= len(tree.keys() - gone)


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("python3", "/home/alice/train.py", "--token", "secret"), "python3 train.py"),
        (("python3", "-u", "-m", "vllm.entrypoints", "serve"), "python3 vllm.entrypoints"),
        (("python3", "-c", "print('secret')"), None),
        (("python3",), None),
        (("python3", "x" * 60 + ".py"), f"python3 {'x' * 40}"),
    ],
)
def test_a_large_python_program_is_named_by_its_script(tmp_path: Path, argv: tuple[str, ...], name: str | None) -> None:
    """Never by an argument, which may hold a secret; a process that hangs is not asked."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes("\0".join([*argv, ""]).encode())
    large = ProcessMemory(7, 1, "python3", 1000, account.SCRIPT_LARGE, 0)
    assert account.script_names([large], tmp_path) == ({7: name} if name else {})
    others = replace(large, stuck=True), replace(large, anonymous=1), replace(large, name="node")
    assert account.script_names(others, tmp_path) == {}
