"""Every byte of MemTotal has one holder, whatever was read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.memory.account import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.host.memory_account.owners import Owner
from sparkdash.host.memory_account.pools import MemoryFigures, ShmFiles, divide
from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.memory_account.sums import ROWS, divide_memory
from sparkdash.units import GIB, KIB, MIB

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
SSH = Owner(Holder.UNIT, "ssh.service", unit="ssh.service")
GPU_BYTES = 63_931 * MIB


def process(pid: int, anonymous: int = 0, shared: int = 0, name: str = "python3") -> ProcessMemory:
    """One process of root's."""
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


def row(found: MemoryAccount, name: str) -> Holding:
    """The holding of that name."""
    return next(one for one in found.holdings if one.name == name)


def test_an_engine_holds_its_gpu_and_its_host_memory_in_one_row() -> None:
    """On a GB10 both are the same memory; the pages that its processes share count once."""
    found = row(divide_memory(figures()), "qwen")
    assert (found.bytes, found.host_bytes, found.gpu_bytes) == (
        GPU_BYTES + 4 * GIB + 512 * MIB,
        4 * GIB + 512 * MIB,
        GPU_BYTES,
    )
    assert (found.processes, found.pid, found.remedy) == (2, 10, "sparkdash stop qwen")


def test_the_holdings_add_up_to_the_total() -> None:
    """Each byte once."""
    found = divide_memory(figures())
    assert sum(one.bytes for one in found.holdings) == found.total == GB10["MemTotal"]


def test_a_container_is_named_with_the_command_that_frees_it() -> None:
    """As its runtime names it, image and all; a small service has no command."""
    found = divide_memory(figures())
    assert (row(found, "open-webui").what, row(found, "open-webui").remedy) == ("webui:1", "docker stop open-webui")
    assert row(found, "ssh.service").remedy is None


def test_what_the_driver_took_for_nobody_is_a_row() -> None:
    """MemTotal without all that the kernel explains and without what NVML names: GPU memory of processes that ended shows here."""
    alive, dead = divide_memory(figures()), divide_memory(figures(gpu={}))
    unnamed = row(alive, "GPU driver or kernel")
    assert unnamed.kind is Holder.UNACCOUNTED
    assert row(dead, "GPU driver or kernel").bytes == unnamed.bytes + GPU_BYTES
    assert "no process that the GPU driver names" in (unnamed.what or "")


def test_without_nvml_the_engines_gpu_memory_is_not_guessed() -> None:
    """It stays with the driver, and the row says that the owner is not known."""
    found = divide_memory(figures(gpu=None))
    assert (row(found, "qwen").gpu_bytes, row(found, "qwen").bytes) == (None, 4 * GIB + 512 * MIB)
    assert "NVML does not tell whose it is" in (row(found, "GPU driver or kernel").what or "")
    assert not found.gpu_told


def test_a_driver_that_tells_of_some_processes_only_does_not_count_as_telling() -> None:
    """What it does not tell is then not called nobody's."""
    found = divide_memory(figures(gpu={}, gpu_whole=False))
    assert not found.gpu_told
    assert "NVML does not tell whose it is" in (row(found, "GPU driver or kernel").what or "")


def test_a_driver_that_is_silent_is_told_apart_from_no_gpu() -> None:
    """The row's name says who may have it."""
    assert row(divide_memory(figures(gpu=None, gpu_memory=GpuMemory.SILENT)), "GPU driver or kernel").bytes > 60 * GIB
    assert row(divide_memory(figures(gpu=None, gpu_memory=GpuMemory.NONE)), "not accounted").bytes > 60 * GIB


def test_the_cache_of_zfs_is_a_row() -> None:
    """It is in none of the figures of /proc/meminfo, and comes back on demand."""
    found = row(divide_memory(figures(arc=7 * GIB)), "ZFS cache")
    assert (found.bytes, found.reclaimable) == (7 * GIB, True)


def test_file_systems_in_memory_are_named() -> None:
    """The three largest of those that hold much; it is part of what shared memory holds."""
    tmpfs = {"/run": MIB, "/tmp": 3 * GIB, "/dev/shm": GIB // 2}
    assert (
        row(divide_memory(figures(tmpfs=tmpfs)), "shared memory").what
        == "tmpfs, memfd, System V: /tmp 3.0 GiB, /dev/shm 0.5 GiB"
    )


def test_a_gpu_with_memory_of_its_own_takes_nothing_of_the_systems() -> None:
    """Its figures are shown, and no byte of the account is theirs."""
    found = divide_memory(figures(gpu_memory=GpuMemory.OWN))
    assert (row(found, "qwen").gpu_bytes, row(found, "qwen").bytes) == (GPU_BYTES, 4 * GIB + 512 * MIB)
    assert sum(one.bytes for one in found.holdings) == found.total


def test_figures_of_the_driver_beyond_what_is_unexplained_are_scaled_and_told() -> None:
    """Two sources overlap: a note says so, and the sum stays exact."""
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


def test_an_exact_share_is_not_scaled() -> None:
    """Where forks overlap, the shares that are known stay; the others have the rest."""
    forks = (
        ProcessMemory(10, 1, "big", 0, 6 * GIB, 0, exact=True),
        ProcessMemory(11, 1, "small", 0, 4 * GIB, 0),
        ProcessMemory(12, 1, "alike", 0, 4 * GIB, 0),
    )
    named = {one.pid: Owner(Holder.PROGRAM, one.name) for one in forks}
    found = divide_memory(figures(processes=forks, owners=named, gpu=None))
    assert [row(found, name).bytes for name in ("big", "small", "alike")] == [6 * GIB, 3 * GIB // 2, 3 * GIB // 2]


def test_leftover_files_are_named_with_their_removal() -> None:
    """Names that a shell could take amiss are not typed."""
    files = ShmFiles("alice", 2 * GIB // 4, ("psm_1", "psm_a;reboot", "sem.mp-x"), 7200.0, own=True, certain=True)
    found = row(divide_memory(figures(leftovers=(files,))), "/dev/shm")
    assert (found.bytes, found.user) == (GIB // 2, "alice")
    assert found.remedy == "rm -- /dev/shm/psm_1 /dev/shm/sem.mp-x"
    assert found.what == "3 files like psm_1, up to 2h00m old; no process maps them"


def test_no_removal_without_certainty() -> None:
    """Another user's process may map them."""
    files = ShmFiles("root", GIB // 2, ("psm_1",), 7200.0, own=False, certain=False)
    found = row(divide_memory(figures(leftovers=(files,))), "/dev/shm")
    assert found.remedy is None
    assert "may not look at may map them" in (found.what or "")


def test_weights_are_part_of_the_page_cache() -> None:
    """What is cached of a model is its row; the rest stays one."""
    found = divide_memory(figures(weights={"Qwen/Qwen3": 5 * GIB}))
    cached = GB10["Cached"] + GB10["Buffers"] - GB10["Shmem"]
    assert (row(found, "Qwen/Qwen3").kind, row(found, "Qwen/Qwen3").bytes) == (Holder.WEIGHTS, 5 * GIB)
    assert row(found, "page cache").bytes == cached - 5 * GIB


def test_many_small_holders_share_a_row() -> None:
    """A box with thousands of services has a table that ends."""
    many = tuple(process(pid, MIB) for pid in range(1000, 4000))
    named = {one.pid: Owner(Holder.UNIT, f"u{one.pid}.service") for one in many}
    found = divide_memory(figures(processes=many, owners=named, gpu=None))
    assert len(found.holdings) < ROWS + 15
    small = row(found, f"{3000 - ROWS} smaller")
    assert (small.bytes, small.processes) == ((3000 - ROWS) * MIB, 3000 - ROWS)


def test_who_holds_comes_first_and_free_memory_last() -> None:
    """By size; what comes back on demand after what does not."""
    found = divide_memory(figures()).holdings
    given_back = [one.reclaimable for one in found]
    assert given_back[:-1] == sorted(given_back[:-1])
    assert found[-1].kind is Holder.FREE
    held = [one.bytes for one in found if not one.reclaimable][:-1]
    assert held == sorted(held, reverse=True)


SIZES = st.integers(0, 64 * GIB)
OWNERS = st.sampled_from(
    [
        ENGINE,
        WEB,
        SSH,
        Owner(Holder.PROGRAM, "a\x1b[2J"),
        Owner(Holder.PROGRAM, "a\x1b[2J", "bob"),
        Owner(Holder.SPARKDASH, "sparkdash"),
    ]
)


@st.composite
def boxes(draw: Any) -> MemoryFigures:
    """Figures that contradict each other, as files that are read one after the other do, and worse."""
    total = draw(st.integers(1, 256 * GIB))
    names = [name for name in (*GB10, "Hugetlb", "Zswap", "Balloon", "SecPageTables") if name != "MemTotal"]
    info = {name: draw(SIZES) for name in draw(st.sets(st.sampled_from(names)))}
    pids = draw(st.lists(st.integers(2, 99), unique=True, max_size=12))
    told = draw(st.none() | st.dictionaries(st.integers(2, 120), SIZES, max_size=6))
    files = draw(st.lists(st.tuples(SIZES, st.booleans(), st.booleans()), max_size=3))
    return MemoryFigures(
        at=0.0,
        meminfo={"MemFree": draw(SIZES), **info, "MemTotal": total},
        zram=draw(SIZES),
        arc=draw(SIZES),
        gpu_whole=draw(st.booleans()),
        processes=tuple(replace(process(pid, draw(SIZES), draw(SIZES)), exact=draw(st.booleans())) for pid in pids),
        owners={pid: draw(OWNERS) for pid in pids},
        gpu=told,
        gpu_memory=draw(st.sampled_from(list(GpuMemory))),
        leftovers=tuple(
            ShmFiles(f"u{i}", size, ("psm_1",), 90.0, own=own, certain=certain)
            for i, (size, own, certain) in enumerate(files)
        ),
        weights=draw(st.dictionaries(st.sampled_from(["a/b", "c/d"]), SIZES)),
    )


@given(boxes())
def test_any_figures_add_up_and_none_is_negative(box: MemoryFigures) -> None:
    """Whatever overlaps, is missing, or was read at another moment."""
    found = divide_memory(box)
    assert sum(one.bytes for one in found.holdings) == found.total
    assert all(one.bytes >= 0 for one in found.holdings)
    assert MemoryAccount.model_validate_json(found.model_dump_json()) == found


@given(st.integers(0, GIB), st.dictionaries(st.integers(), st.integers(-10, GIB)))
def test_a_division_leaves_nothing_over_and_takes_nothing_twice(total: int, claims: dict[int, int]) -> None:
    """Scaled to the byte, and nobody gets more than was claimed."""
    shares, rest = divide(total, claims)
    assert sum(shares.values()) + rest == total
    assert all(0 <= share <= claims[key] for key, share in shares.items())
