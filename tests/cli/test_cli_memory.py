"""`sparkdash memory`, and `why` with who else holds memory."""

from __future__ import annotations

import os
from collections.abc import Callable
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
REFUSED = Plan(
    profile="big",
    need=Need(basis=Basis.DECLARED, terms=(Term(name="weights", bytes=100 * GIB, source="model card"),)),
    needs_bytes=100 * GIB,
    now_bytes=24 * GIB,
    reserve_bytes=10 * GIB,
    available_bytes=74 * GIB,
    fits=False,
    verdict="It does not fit.",
)


def test_the_table_has_everybody_with_the_command_that_frees_it(
    sparkdash: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    daemon.memory = FOUND
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


def test_json_is_the_whole_account(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.memory = FOUND
    assert MemoryAccount.model_validate(sparkdash("memory", "--json").json()) == FOUND


@pytest.mark.usefixtures("nobody")
def test_without_a_daemon_the_command_looks_itself(
    sparkdash: Run, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARKDASH_URL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = MemoryAccount.model_validate(sparkdash("memory", "--json").json())
    assert sum(one.bytes for one in found.holdings) == found.total
    assert found.total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.usefixtures("nobody")
def test_of_another_boxs_daemon_this_box_tells_nothing(sparkdash: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDASH_URL", "http://127.0.0.1:1")
    assert sparkdash("memory").code != 0


def test_why_names_who_holds_the_rest_of_what_does_not_fit(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.plans["big"], daemon.memory = REFUSED, FOUND
    told = sparkdash("why", "big").out.splitlines()
    assert told[-3:] == [
        "It does not fit.",
        "  others hold     30 GiB GPU driver or kernel (owner unknown)",
        "                  6.0 GiB open-webui\\u001b[2J (webui:1): docker stop 0a",
    ]
    daemon.plans["big"] = REFUSED.replace(fits=True, verdict="It fits.")
    assert sparkdash("why", "big").out.splitlines()[-1] == "It fits."


def test_why_does_without_the_account_of_a_demo(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.plans["big"] = REFUSED
    done = sparkdash("why", "big")
    assert (done.code, done.out.splitlines()[-1]) == (0, "It does not fit.")


def test_why_proposes_to_kill_no_program(sparkdash: Run, daemon: FakeDaemon) -> None:
    """The owner knows what a program does; the table of all holders has the command."""
    program = Holding(kind=Holder.PROGRAM, name="python3", bytes=30 * GIB, user="ann", pid=31, remedy="kill 31")
    daemon.plans["big"], daemon.memory = REFUSED, FOUND.replace(holdings=(program,))
    assert sparkdash("why", "big").out.splitlines()[-1] == "  others hold     30 GiB python3 (pid 31)"
