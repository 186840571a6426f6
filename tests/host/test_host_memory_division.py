"""Every byte of MemTotal has one holder, whatever was read; and whose a process is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
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


def row(found: MemoryAccount, name: str) -> Holding:
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


def test_a_container_is_named_with_the_command_that_frees_it() -> None:
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
    """The GPU memory stays with the driver, and the row says that the owner is not known."""
    found = divide_memory(figures(gpu=None))
    assert (row(found, "qwen").gpu_bytes, row(found, "qwen").bytes) == (None, 4 * GIB + 512 * MIB)
    assert "NVML does not tell whose it is" in (row(found, "GPU driver or kernel").what or "")
    assert not found.gpu_told


def test_a_driver_that_tells_of_some_processes_only_does_not_count_as_telling() -> None:
    found = divide_memory(figures(gpu={}, gpu_whole=False))
    assert not found.gpu_told
    assert "NVML does not tell whose it is" in (row(found, "GPU driver or kernel").what or "")


def test_a_driver_that_is_silent_is_told_apart_from_no_gpu() -> None:
    assert row(divide_memory(figures(gpu=None, gpu_memory=GpuMemory.SILENT)), "GPU driver or kernel").bytes > 60 * GIB
    assert row(divide_memory(figures(gpu=None, gpu_memory=GpuMemory.NONE)), "not accounted").bytes > 60 * GIB


def test_a_gpu_with_memory_of_its_own_takes_nothing_of_the_systems() -> None:
    """The GPU's figures are shown, and no byte of the account is theirs."""
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


def test_who_holds_comes_first_and_free_memory_last() -> None:
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
    """Even where readings overlap, are missing, or come of another moment."""
    found = divide_memory(box)
    assert sum(one.bytes for one in found.holdings) == found.total
    assert all(one.bytes >= 0 for one in found.holdings)
    assert MemoryAccount.model_validate_json(found.model_dump_json()) == found


@given(st.integers(0, GIB), st.dictionaries(st.integers(), st.integers(-10, GIB)))
def test_a_division_leaves_nothing_over_and_takes_nothing_twice(total: int, claims: dict[int, int]) -> None:
    shares, rest = divide(total, claims)
    assert sum(shares.values()) + rest == total
    assert all(0 <= share <= claims[key] for key, share in shares.items())


ID = "0123456789abcdef" * 4
SHORT = ID[:12]


def one(pid: int, cgroup: str = "/", parent: int = 1, name: str = "python3", uid: int = 1000) -> ProcessMemory:
    return ProcessMemory(pid, parent, name, uid, 1, 0, cgroup=cgroup)


def owner(cgroup: str, known: KnownOwners | None = None, name: str = "python3") -> Owner:
    """Owner of a single process with that control group."""
    return owners([one(7, cgroup, name=name)], known or KnownOwners(users={1000: "alice"}, asks=1000))[7]


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"/machine.slice/libpod-{ID}.scope/container", "podman"),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", "podman"),
        (f"/libpod_parent/libpod-{ID}", "podman"),
        (f"/system.slice/docker-{ID}.scope", "docker"),
        (f"/default/{ID}", "containerd"),
    ],
)
def test_a_container_by_its_control_group(path: str, runtime: str) -> None:
    """For every runtime; a name that nobody tells is its short id."""
    assert container_id(path) == (runtime, ID)
    assert owner(path) == Owner(Holder.CONTAINER, SHORT, runtime=runtime)


def test_a_container_by_the_name_that_its_runtime_tells() -> None:
    path = f"/system.slice/docker-{ID}.scope"
    theirs = KnownOwners(containers={ID: Owner(Holder.CONTAINER, "open-webui", runtime="docker", image="webui:1")})
    assert owner(path, theirs) == Owner(Holder.CONTAINER, "open-webui", runtime="docker", image="webui:1")
    ours = KnownOwners(containers={ID: Owner(Holder.ENGINE, "qwen")})
    assert owner(path, ours) == Owner(Holder.ENGINE, "qwen")


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
    """By its name, whoever's daemon it shows."""
    found = owners([one(5, name="sparkdash"), one(6, parent=5)], KnownOwners())
    assert {one.kind for one in found.values()} == {Holder.SPARKDASH}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/system.slice/gdm.service", "gdm.service"),
        ("/user.slice/user-1000.slice/user@1000.service/session.slice/org.gnome.Shell@wayland.service", "org.gnome.Shell@wayland.service"),
    ],
)  # fmt: skip
def test_a_service_or_application_by_its_unit(path: str, name: str) -> None:
    assert (owner(path).kind, owner(path).name) == (Holder.UNIT, name)


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
