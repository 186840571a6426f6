"""`sparkdash memory`, its caches, and `why` with who else holds memory."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import GIB, FakeDaemon

from sparkdash.domain.memory import Basis, GpuMemory, Holder, Holding, MemoryAccount, Need, Term
from sparkdash.domain.swap import Plan
from sparkdash.units import MIB

Run = Callable[..., Any]

FOUND = MemoryAccount(
    at=1.0,
    total=120 * GIB,
    available=24 * GIB,
    gpu=GpuMemory.UNIFIED,
    gpu_told=True,
    mlocked_bytes=2 * GIB,
    swap_total=16 * GIB,
    swap_used=GIB,
    unreadable=3,
    notes=("Processes are told to hold too much.",),
    holdings=(
        Holding(kind=Holder.ENGINE, name="qwen", bytes=60 * GIB, gpu_bytes=56 * GIB, processes=12, remedy="sparkdash stop qwen"),
        Holding(kind=Holder.UNACCOUNTED, name="GPU driver or kernel", bytes=30 * GIB - 8 * MIB, what="owner unknown"),
        Holding(kind=Holder.CONTAINER, name="open-webui\x1b[2J", bytes=6 * GIB, what="webui:1", processes=3, remedy="docker stop 0a"),
        Holding(kind=Holder.PROGRAM, name="tail", bytes=8 * MIB, user="alice", processes=1),
        Holding(kind=Holder.CACHE, name="page cache", bytes=18 * GIB),
        Holding(kind=Holder.FREE, name="free", bytes=6 * GIB),
    ),
)  # fmt: skip
WEIGHTS = Term(name="weights", bytes=100 * GIB, source="model card")
REFUSED = Plan(
    profile="big", need=Need(basis=Basis.DECLARED, terms=(WEIGHTS,)), needs_bytes=100 * GIB, now_bytes=24 * GIB,
    reserve_bytes=10 * GIB, available_bytes=74 * GIB, fits=False, verdict="It does not fit.",
)  # fmt: skip


def test_the_table_has_everybody_with_the_command_that_frees_it(
    sparkdash: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    daemon.memory = FOUND
    assert MemoryAccount.model_validate(sparkdash("memory", "--json").json()) == FOUND
    done = sparkdash("memory")
    assert (done.code, done.err) == (0, "")
    rows = [line.rstrip() for line in done.out.splitlines()]
    assert rows[0] == "120 GiB in all, 24 GiB available, 1.0 GiB in swap"
    assert rows[3].split() == ["60", "GiB", "qwen", "engine", "12", "56", "GiB", "sparkdash", "stop", "qwen"]
    assert "\\u001b[2J" in done.out
    assert "\x1b" not in done.out
    assert "8.0 MiB  1 smaller" in done.out
    assert rows[-3:] == [
        "Processes are told to hold too much.",
        "Some processes are hidden from this user: `sudo sparkdash memory` shows them.",
        "2.0 GiB are locked in memory, neither swapped nor evicted. The rows above include them.",
    ]


def test_a_narrow_terminal_keeps_holders_and_commands(
    sparkdash: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    daemon.memory = FOUND
    done = sparkdash("memory")
    assert max(map(len, done.out.splitlines()[2:-4])) <= 60
    assert "sparkdash stop qwen" in done.out
    assert done.err.startswith("Left out to fit 60 columns: what")


@pytest.mark.usefixtures("nobody")
def test_without_a_daemon_the_command_looks_itself_unless_another_box_is_meant(
    sparkdash: Run, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARKDASH_URL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = MemoryAccount.model_validate(sparkdash("memory", "--json").json())
    assert sum(one.bytes for one in found.holdings) == found.total
    assert found.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setenv("SPARKDASH_URL", "http://127.0.0.1:1")
    assert sparkdash("memory").code != 0


def test_why_names_who_holds_the_rest_of_what_does_not_fit(sparkdash: Run, daemon: FakeDaemon) -> None:
    """The doctor proposes to kill no program: the table of all holders has the command."""
    program = Holding(kind=Holder.PROGRAM, name="python3", bytes=4 * GIB, user="ann", pid=31, remedy="kill 31")
    daemon.plans["big"] = REFUSED
    assert sparkdash("why", "big").out.splitlines()[-1] == "It does not fit.", "a demo has no account"
    daemon.memory = FOUND.replace(holdings=(*FOUND.holdings, program))
    told = sparkdash("why", "big").out.splitlines()
    assert told[-4:] == [
        "It does not fit.",
        "  others hold     30 GiB GPU driver or kernel (owner unknown)",
        "                  6.0 GiB open-webui\\u001b[2J (webui:1): docker stop 0a",
        "                  4.0 GiB python3 (pid 31)",
    ]
    daemon.plans["big"] = REFUSED.replace(fits=True, verdict="It fits.")
    assert sparkdash("why", "big").out.splitlines()[-1] == "It fits."


DAY = 86400


@pytest.fixture
def folders(tmp_path: Path, stand_in: Callable[[str, str], None]) -> Path:
    """Two caches, and a podman that lists one container, which has the older one mounted."""
    root = tmp_path / "cache" / "engines"
    (tmp_path / "config" / "config.toml").write_text(f'cache_dir = "{root.parent}"\n')
    for days, name in ((2, "new@0123456789ab@m"), (40, "old@0123456789ab@m"), (90, "used@0123456789ab@m")):
        (root / name).mkdir(parents=True)
        (root / name / "kernel").write_bytes(b"k" * 4096)
        os.utime(root / name, (time.time() - days * DAY,) * 2)
    listed = (
        f'[{{"Id": "1", "State": {{"Status": "running"}}, "Mounts": [{{"Source": "{root}/used@0123456789ab@m"}}]}}]'
    )
    stand_in("podman", f"if [ $1 = ps ]; then echo 1; else echo '{listed}'; fi")
    return root


def test_the_list_of_caches_says_what_is_used(sparkdash: Run, folders: Path) -> None:
    done = sparkdash("memory", "--caches")
    assert [line.split()[0] for line in done.out.splitlines()] == ["image", "new", "old", "used", "12"]
    assert [line.endswith("in use") for line in done.out.splitlines()] == [False, False, False, True, False]


def test_a_removal_takes_what_no_start_and_no_engine_uses(sparkdash: Run, folders: Path) -> None:
    told = sparkdash("memory", "--prune", "30d", "--dry-run", "--json").json()
    assert [(one["image"], one["old"], one["removed"]) for one in told] == [
        ("new", False, False), ("old", True, False), ("used", False, False),
    ]  # fmt: skip
    assert len(list(folders.iterdir())) == 3
    assert "Removed 4 KiB" in sparkdash("memory", "--prune", "30d").out
    assert sorted(each.name[:3] for each in folders.iterdir()) == ["new", "use"]
