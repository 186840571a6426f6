"""The account of memory: how it is read, and that every byte of MemTotal has one holder, whatever was read."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerState
from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.domain.metric import Gpu
from sparkdash.host.box import NOTHING, GpuReading, Nvml
from sparkdash.host.memory import account
from sparkdash.host.memory.account import Sources, account_for_memory
from sparkdash.host.memory.account_division import (
    KnownOwners,
    MemoryFigures,
    Owner,
    ProcessMemory,
    container_id,
    divide,
    divide_memory,
    owners,
    remedy,
)
from sparkdash.units import GIB, KIB, MIB

ID = "0123456789abcdef" * 4
OWNER = "me"
NOBODY = 65534
LIVE = "import os, time; os.setuid({uid}); held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); print('up', flush=True); time.sleep(60)"


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
    web = row(found, "open-webui")
    assert (web.bytes, web.what, web.remedy) == (2 * GIB, "webui:1", "podman stop open-webui")
    assert row(found, "gdm.service").bytes == 100_000 * KIB + 50 * MIB
    make = row(found, "make")
    assert (make.user, make.swap_bytes, make.remedy) == ("alice", 5000 * KIB, "kill 31")


async def test_our_engines_are_known_without_the_daemon(gb10_proc: Path) -> None:
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


async def test_runtimes_that_hang_cost_names_only(
    gb10_proc: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "RUNTIME_S", 0.05)
    other = "f" * 64
    add(gb10_proc, 20, anonymous=GIB // KIB, cgroup=f"0::/libpod-{ID}.scope")
    add(gb10_proc, 21, anonymous=GIB // KIB, cgroup=f"0::/system.slice/docker-{other}.scope")
    program("docker", "exec sleep 60")
    found = await account_for_memory(sources(gb10_proc, runtime=FakeRuntime(hangs=True)))
    assert (row(found, ID[:12]).bytes, row(found, other[:12]).bytes) == (GIB, GIB)


async def test_another_runtime_is_asked_for_its_own_names(gb10_proc: Path, program: Callable[[str, str], Path]) -> None:
    add(gb10_proc, 20, anonymous=GIB // KIB, cgroup=f"0::/system.slice/docker-{ID}.scope")
    calls = program("docker", f"printf '{ID}\\topen-webui\\twebui:1\\nrubbish\\n'")
    assert row(await account_for_memory(sources(gb10_proc)), "open-webui").remedy == "docker stop open-webui"
    assert calls.read_text().startswith("ps --no-trunc")


async def test_processes_that_vanish_or_are_rubbish_are_left_out(gb10_proc: Path) -> None:
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
    with refused("no_meminfo"):
        await account_for_memory(sources(tmp_path))


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


async def test_this_box_adds_up() -> None:
    found = await account_for_memory(Sources(runtime=FakeRuntime(), gpu=no_gpu, owner=OWNER))  # type: ignore[arg-type]
    assert adds_up(found)
    assert found.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert any(one.kind is Holder.SPARKDASH and one.bytes > MIB for one in found.holdings)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_a_process_of_another_user_is_named_with_its_user(tmp_path: Path, new_child: Any) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text(f"stranger:x:{NOBODY}:{NOBODY}::/:/bin/sh\n")
    given = Sources(  # type: ignore[arg-type]
        runtime=FakeRuntime(), gpu=no_gpu, owner=OWNER, passwd=passwd, ours=frozenset(), uid=1
    )
    pid = new_child(sys.executable, "-c", LIVE.format(size=400 * MIB, uid=NOBODY)).pid
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
    gb10_proc: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tree: dict[int, Any],
    gone: set[int],
    gpu: dict[int, int] | None,
) -> None:
    proc = tmp_path_factory.mktemp("tree") / "proc"
    proc.mkdir()
    meminfo = (gb10_proc / "meminfo").read_text()
    (proc / "meminfo").write_text(f"{meminfo}AnonPages: 9437184 kB\nSUnreclaim: 900000 kB\n")
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


@pytest.mark.parametrize(("argv", "name"), [
    (("python3", "/home/alice/train.py", "--token", "secret"), "python3 train.py"),
    (("python3", "-u", "-m", "vllm.entrypoints", "serve"), "python3 vllm.entrypoints"),
    (("python3", "-c", "print('secret')"), None), (("python3",), None),
    (("python3", "x" * 60 + ".py"), f"python3 {'x' * 40}"),
])  # fmt: skip
def test_a_large_python_program_is_named_by_its_script(tmp_path: Path, argv: tuple[str, ...], name: str | None) -> None:
    """Never by an argument, which may hold a secret; a process that hangs is not asked."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes("\0".join([*argv, ""]).encode())
    large = ProcessMemory(7, 1, "python3", 1000, account.SCRIPT_LARGE, 0)
    assert account.script_names([large], tmp_path) == ({7: name} if name else {})
    others = replace(large, stuck=True), replace(large, anonymous=1), replace(large, name="node")
    assert account.script_names(others, tmp_path) == {}


GB10 = {
    "MemTotal": 127_600_748 * KIB,
    "MemFree": 2_904_064 * KIB,
    "MemAvailable": 24_525_952 * KIB,
    "Buffers": 81_240 * KIB,
    "Cached": 23_477_376 * KIB,
    "Shmem": 1_048_576 * KIB,
    "AnonPages": 9_437_184 * KIB,
    "Mlocked": 20_480 * KIB,
    "Slab": 3_000_000 * KIB,
    "KReclaimable": 2_097_152 * KIB,
    "SReclaimable": 2_097_152 * KIB,
    "SUnreclaim": 902_848 * KIB,
    "KernelStack": 30_000 * KIB,
    "PageTables": 200_000 * KIB,
    "VmallocUsed": 90_000 * KIB,
    "Percpu": 20_000 * KIB,
    "SwapTotal": 16_777_212 * KIB,
    "SwapFree": 16_252_924 * KIB,
}
"""A GB10 with a big engine: 121.69 GiB, most of it taken by CUDA, which no figure of the kernel names."""
ENGINE, WEB = Owner(Holder.ENGINE, "qwen"), Owner(Holder.CONTAINER, "open-webui", runtime="docker", image="webui:1")
SSH = Owner(Holder.UNIT, "ssh.service")
GPU_BYTES = 63_931 * MIB


def process(pid: int, anonymous: int = 0, shared: int = 0, name: str = "python3") -> ProcessMemory:
    return ProcessMemory(pid, 1, name, 0, anonymous, shared)


def figures(**changes: Any) -> MemoryFigures:
    """An engine of two processes on the GPU, a container and a service, on a GB10."""
    given = {
        "at": 1.0,
        "meminfo": GB10,
        "processes": (
            process(10, 3 * GIB, 512 * MIB, "VLLM::EngineCor"),
            process(11, GIB, 512 * MIB, "vllm"),
            process(20, 2 * GIB, name="uvicorn"),
            process(30, 20 * MIB, name="sshd"),
        ),
        "owners": {10: ENGINE, 11: ENGINE, 20: WEB, 30: SSH},
        "gpu": {10: GPU_BYTES},
        "gpu_memory": GpuMemory.UNIFIED,
    }
    return MemoryFigures(**{**given, **changes})


def test_an_engine_holds_its_gpu_and_its_host_memory_in_one_row() -> None:
    found = row(divide_memory(figures()), "qwen")
    host = 4 * GIB + 512 * MIB
    assert (found.bytes, found.host_bytes, found.gpu_bytes) == (GPU_BYTES + host, host, GPU_BYTES)
    assert (found.processes, found.pid, found.remedy) == (2, 10, "sparkdash stop qwen")


def test_what_the_driver_took_for_nobody_is_a_row() -> None:
    """MemTotal without all that the kernel explains and without what NVML names: GPU memory of processes that ended shows here."""
    alive, dead = divide_memory(figures()), divide_memory(figures(gpu={}))
    unnamed = row(alive, "GPU driver or kernel")
    assert unnamed.kind is Holder.UNACCOUNTED
    assert row(dead, "GPU driver or kernel").bytes == unnamed.bytes + GPU_BYTES
    assert "no process that the GPU driver names" in (unnamed.what or "")


def test_without_nvml_the_engines_gpu_memory_is_not_guessed() -> None:
    found = divide_memory(figures(gpu=None))
    assert (row(found, "qwen").gpu_bytes, row(found, "qwen").bytes) == (None, 4 * GIB + 512 * MIB)
    for some in (found, divide_memory(figures(gpu={}, gpu_whole=False))):  # nor where it tells of some processes only
        assert "NVML does not tell whose it is" in (row(some, "GPU driver or kernel").what or "")
        assert not some.gpu_told


def test_a_driver_that_is_silent_is_told_apart_from_no_gpu() -> None:
    assert row(divide_memory(figures(gpu=None, gpu_memory=GpuMemory.SILENT)), "GPU driver or kernel").bytes > 60 * GIB
    assert row(divide_memory(figures(gpu=None, gpu_memory=GpuMemory.NONE)), "not accounted").bytes > 60 * GIB


def test_a_gpu_with_memory_of_its_own_takes_nothing_of_the_systems() -> None:
    found = divide_memory(figures(gpu_memory=GpuMemory.OWN))
    assert (row(found, "qwen").gpu_bytes, row(found, "qwen").bytes) == (GPU_BYTES, 4 * GIB + 512 * MIB)
    assert sum(one.bytes for one in found.holdings) == found.total


def test_figures_of_the_driver_beyond_what_is_unexplained_are_scaled_and_told() -> None:
    found = divide_memory(figures(gpu={10: 150 * GIB}))
    assert sum(one.bytes for one in found.holdings) == found.total
    assert row(found, "qwen").gpu_bytes == 150 * GIB
    assert "150.0 GiB of GPU memory by NVML" in found.notes[0]


def test_a_gpu_process_that_nobody_sees_has_a_row() -> None:
    """Hidden from this user, or ended while the driver still names it."""
    found = row(divide_memory(figures(gpu={10: GPU_BYTES, 777: GIB})), "pid 777")
    assert (found.kind, found.bytes, found.gpu_bytes) == (Holder.UNSEEN, GIB, GIB)


def test_anonymous_memory_of_hidden_processes_is_a_row() -> None:
    """With hidepid only one's own are listed; the kernel's sum has all."""
    found = divide_memory(figures(processes=(), owners={}, gpu=None))
    assert row(found, "other processes").bytes == GB10["AnonPages"]


def test_who_holds_comes_first_and_free_memory_last() -> None:
    found = divide_memory(figures()).holdings
    given_back = [one.reclaimable for one in found]
    assert given_back[:-1] == sorted(given_back[:-1])
    assert found[-1].kind is Holder.FREE
    held = [one.bytes for one in found if not one.reclaimable][:-1]
    assert held == sorted(held, reverse=True)


SIZES = st.integers(0, 64 * GIB)
PROGRAM = Owner(Holder.PROGRAM, "a\x1b[2J")
OWNERS = st.sampled_from(
    [ENGINE, WEB, SSH, PROGRAM, Owner(Holder.PROGRAM, "a\x1b[2J", "bob"), Owner(Holder.SPARKDASH, "sparkdash")]
)


@st.composite
def boxes(draw: Any) -> MemoryFigures:
    """Figures that contradict each other, as files that are read one after the other do, and worse."""
    total = draw(st.integers(1, 256 * GIB))
    names = [name for name in (*GB10, "Hugetlb", "SecPageTables") if name != "MemTotal"]
    info = {name: draw(SIZES) for name in draw(st.sets(st.sampled_from(names)))}
    pids = draw(st.lists(st.integers(2, 99), unique=True, max_size=12))
    told = draw(st.none() | st.dictionaries(st.integers(2, 120), SIZES, max_size=6))
    return MemoryFigures(
        at=0.0,
        meminfo={"MemFree": draw(SIZES), **info, "MemTotal": total},
        gpu_whole=draw(st.booleans()),
        processes=tuple(process(pid, draw(SIZES), draw(SIZES)) for pid in pids),
        owners={pid: draw(OWNERS) for pid in pids},
        gpu=told,
        gpu_memory=draw(st.sampled_from(list(GpuMemory))),
    )


@given(boxes())
def test_any_figures_add_up_and_none_is_negative(box: MemoryFigures) -> None:
    found = divide_memory(box)
    assert sum(one.bytes for one in found.holdings) == found.total
    assert all(one.bytes >= 0 for one in found.holdings)
    assert MemoryAccount.model_validate_json(found.model_dump_json()) == found


@given(st.integers(0, GIB), st.dictionaries(st.integers(), st.integers(-10, GIB)))
def test_a_division_leaves_nothing_over_and_takes_nothing_twice(total: int, claims: dict[int, int]) -> None:
    shares, rest = divide(total, claims)
    assert sum(shares.values()) + rest == total
    assert all(0 <= share <= claims[key] for key, share in shares.items())


SHORT = ID[:12]


def one(pid: int, cgroup: str = "/", parent: int = 1, name: str = "python3", uid: int = 1000) -> ProcessMemory:
    return ProcessMemory(pid, parent, name, uid, 1, 0, cgroup=cgroup)


def owner(cgroup: str, known: KnownOwners | None = None, name: str = "python3") -> Owner:
    """Owner of a single process with that control group."""
    return owners([one(7, cgroup, name=name)], known or KnownOwners(users={1000: "alice"}, asks=1000))[7]


@pytest.mark.parametrize(("path", "runtime"), [
    (f"/machine.slice/libpod-{ID}.scope/container", "podman"),
    (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", "podman"),
    (f"/libpod_parent/libpod-{ID}", "podman"), (f"/system.slice/docker-{ID}.scope", "docker"),
    (f"/default/{ID}", "containerd"),
])  # fmt: skip
def test_a_container_by_its_control_group(path: str, runtime: str) -> None:
    assert container_id(path) == (runtime, ID)
    assert owner(path) == Owner(Holder.CONTAINER, SHORT, runtime=runtime)


def test_a_container_without_a_group_of_its_own_by_its_first_one() -> None:
    """Where groups are switched off all descendants of its first process are its."""
    known = KnownOwners(mains={10: Owner(Holder.CONTAINER, "box", runtime="podman")})
    found = owners([one(10), one(11, parent=10), one(12, parent=11), one(13)], known)
    assert {pid for pid, one in found.items() if one.name == "box"} == {10, 11, 12}


def test_two_containers_of_one_name_of_two_runtimes_stay_two() -> None:
    other = "f" * 64
    known = KnownOwners(
        containers={
            ID: Owner(Holder.CONTAINER, "web", runtime="podman"),
            other: Owner(Holder.CONTAINER, "web", runtime="docker"),
        }
    )
    found = owners([one(1, f"/libpod-{ID}.scope"), one(2, f"/docker-{other}.scope")], known)
    assert remedy(found[1], 1) == "podman stop web"
    assert remedy(found[2], 2) == "docker stop web"


def test_an_engine_goes_before_its_container_and_its_parents() -> None:
    """A worker that was forked after the pids were listed is found by its parent."""
    known = KnownOwners(engines={10: "qwen"}, ours=frozenset({5}))
    found = owners([one(5), one(10, parent=5), one(11, parent=10), one(6, parent=5)], known)
    assert [found[pid].name for pid in (5, 10, 11, 6)] == ["sparkdash", "qwen", "qwen", "sparkdash"]


def test_a_dashboard_and_what_it_starts_is_ours() -> None:
    found = owners([one(5, name="sparkdash"), one(6, parent=5)], KnownOwners())
    assert {one.kind for one in found.values()} == {Holder.SPARKDASH}


@pytest.mark.parametrize(
    "path",
    ["/", "", "/init.scope", "/user.slice/user-1000.slice/session-3.scope",
     "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope", "garbage", "x"],
)  # fmt: skip
def test_a_program_of_a_login_by_its_own_name_and_user(path: str) -> None:
    """A session's unit says nothing of what runs in it."""
    assert owner(path, name="llama-server") == Owner(Holder.PROGRAM, "llama-server", "alice")


def test_the_end_of_a_service_that_cuts_the_owner_off_is_not_recommended() -> None:
    """Neither ssh nor the runtime, whose end would take other rows with it; nor another user's application."""
    for unit in ("ssh.service", "systemd-logind.service", "docker.service", "NetworkManager.service"):
        assert remedy(owner(f"/system.slice/{unit}"), 7) is None
    assert remedy(owner("/system.slice/gdm.service"), 7) == "sudo systemctl stop gdm.service"
    app = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-2.scope"
    assert remedy(owner(app), 7) == "systemctl --user stop app-firefox-2.scope"
    assert remedy(owner(app, KnownOwners(asks=1001)), 7) is None


def test_a_name_that_steers_a_shell_or_a_terminal_gets_no_command() -> None:
    for name in ("x; reboot", "$(id)", "a b", "\x1b[2J", "--all", "a\n"):
        assert remedy(Owner(Holder.CONTAINER, name, runtime="docker"), 7) is None


def test_processes_that_are_each_others_parents_do_not_hang_the_look() -> None:
    """A pid may be given out anew between two reads."""
    assert len(owners([one(2, parent=3), one(3, parent=2)], KnownOwners())) == 2
