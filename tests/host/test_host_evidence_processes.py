"""Processes as the kernel tells of them: hung, frozen, gone. A folder stands in for /proc."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.host.evidence.processes import measure_processes, with_argv
from sparkdash.host.evidence.redacted_text import argv_text, log_lines, processes_text, slots_text

PROMPT = "my most secret prompt"
Process = Callable[..., Path]


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """Make process 7 in a folder like /proc, with threads as (state, wchan)."""

    def make(*threads: tuple[str, str], name: str = "VLLM::EngineCor", cgroup: str = "0::/ours\n") -> Path:
        folder = tmp_path / "proc" / "7"
        for number, (state, wchan) in enumerate(threads):
            task = folder / "task" / str(7 + number)
            task.mkdir(parents=True)
            fields = f"{state} 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 {len(threads)} 0 4711 0 0"
            (task / "stat").write_text(f"{7 + number} ({name}) {fields}\n")
            (task / "wchan").write_text(wchan)
            if not number:
                (folder / "stat").write_text(f"7 ({name}) {fields}\n")
        (folder / "status").write_text("Name:\tx\nVmRSS:\t  2048 kB\nRssAnon:\t 1024 kB\n")
        (folder / "cgroup").write_text(cgroup)
        return tmp_path

    return make


def test_threads_are_grouped_by_state_and_place(process: Process) -> None:
    """The signature of a GPU program that never returns: everybody waits."""
    root = process(*[("S", "futex_wait_queue")] * 128, ("R", "0"))
    (seen,) = measure_processes([7], 0.0, root / "proc", root / "cgroups")
    text = processes_text([seen], 1.0)
    assert "    128 threads: S futex_wait_queue\n    1 thread: R 0\n" in text
    assert "pid 7  VLLM::EngineCor  state S  parent 1" in text
    assert "cpu      2.0 s in all" in text
    assert "VmRSS 2.0 MiB, RssAnon 1.0 MiB" in text


def test_the_command_line_of_a_process_that_hangs_in_the_kernel_is_not_read(process: Process) -> None:
    """The reader would hang with it, as this pipe would hold it."""
    root = process(("S", "futex_wait_queue"), ("D", "uvm_spin_loop"))
    os.mkfifo(root / "proc/7/cmdline")
    (seen,) = measure_processes([7], 0.0, root / "proc", root / "cgroups")
    text = processes_text([with_argv(seen, root / "proc")], 1.0)
    assert "1 thread: D uvm_spin_loop" in text
    assert "argv     not read: a thread hangs in the kernel" in text


@pytest.mark.parametrize(
    ("cgroup", "file", "says", "frozen"),
    [
        ("0::/a/b\n", "a/b/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("0::/a/b\n", "a/b/cgroup.events", "populated 1\nfrozen 0\n", False),
        ("6:freezer:/a\n0::/x\n", "freezer/a/freezer.state", "FROZEN\n", True),
        ("6:freezer:/a\n0::/x\n", "freezer/a/freezer.state", "THAWED\n", False),
        ("0::/a\n", "elsewhere", "", None),
    ],
)
def test_a_frozen_control_group_is_seen_in_either_version(
    process: Process, cgroup: str, file: str, says: str, frozen: bool | None
) -> None:
    """`podman pause` stops no process: its state stays S."""
    root = process(("S", "0"), cgroup=cgroup)
    place = root / "cgroups" / file
    place.parent.mkdir(parents=True)
    place.write_text(says)
    (seen,) = measure_processes([7], 0.0, root / "proc", root / "cgroups")
    assert seen.is_frozen is frozen
    assert ("(frozen)" in processes_text([seen], 1.0)) is bool(frozen)


def test_the_command_line_of_a_paused_container_is_read(process: Process) -> None:
    """Version 1 shows what it froze as D, though it hangs nowhere."""
    root = process(("D", "hrtimer_nanosleep"), cgroup="6:freezer:/a\n")
    (root / "cgroups/freezer/a").mkdir(parents=True)
    (root / "cgroups/freezer/a/freezer.state").write_text("FROZEN\n")
    (root / "proc/7/cmdline").write_bytes(b"vllm\0serve\0")
    (seen,) = measure_processes([7], 0.0, root / "proc", root / "cgroups")
    assert with_argv(seen, root / "proc").argv == ("vllm", "serve")


@pytest.mark.parametrize("name", ["a) b (c", "x\n\x1b[2J", ""])
def test_a_process_may_have_any_name(process: Process, name: str) -> None:
    """Brackets, and what would steer a terminal."""
    root = process(("S", "0"), name=name)
    (seen,) = measure_processes([7], 0.0, root / "proc", root / "cgroups")
    text = processes_text([seen], 1.0)
    assert seen.name == name
    assert "\x1b" not in text
    assert text.splitlines()[0].startswith("pid 7 ")


@pytest.mark.parametrize("damage", ["", "7 (x) S 1", "not a stat"])
def test_a_damaged_stat_is_a_process_that_is_not_there(process: Process, damage: str) -> None:
    """Between listing and reading, processes end."""
    root = process(("S", "0"))
    (root / "proc/7/stat").write_text(damage)
    assert measure_processes([7, 8], 0.0, root / "proc", root / "cgroups") == ()


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("vllm", "--api-key", "a", "b", "--port", "1"), "vllm --api-key *** *** --port 1"),
        (("x", "--api-key"), "x --api-key"),
        (
            ("x", "--system-prompt", "be", "evil", "-m", "f"),
            "x --system-prompt [cut: it may hold a prompt] [cut: it may hold a prompt] -m f",
        ),
        (("x", "--api-key", "--port", "1"), "x --api-key --port 1"),
        (("x", "--system-prompt", "be evil", "-m", "f"), "x --system-prompt [cut: it may hold a prompt] -m f"),
        (("x", "--prompt=hello"), "x --prompt=[cut: it may hold a prompt]"),
        (("env", "HF_TOKEN=abc", "OMP_NUM_THREADS=4"), "env HF_TOKEN=*** OMP_NUM_THREADS=4"),
        (("x", "y" * 600), f"x {'y' * 500}…"),
        (("VLLM::EngineCore", "", ""), "VLLM::EngineCore"),
        ((), ""),
    ],
)
def test_a_command_line_is_shown_without_what_nobody_should_see(argv: tuple[str, ...], shown: str) -> None:
    """Keys and prompts, by the flags before them."""
    assert argv_text(argv) == shown


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(PROMPT),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "prompt", "x"]), inner, max_size=4)
        ),
    )
)
def test_no_text_of_slots_is_kept(value: object) -> None:
    """Whatever shape an answer has: names, numbers, yes and no are all that comes through."""
    kept = json.loads(slots_text(json.dumps(value).encode()))
    assert PROMPT not in json.dumps(kept)


@given(st.lists(st.text(max_size=80), max_size=30))
def test_no_log_trips_its_reader(lines: list[str]) -> None:
    """A line of the log is a line of the file, and there are no more than there were."""
    kept = log_lines(lines)
    assert len(kept) <= len(lines)
    assert not [line for line in kept if "\n" in line or "\x1b" in line]
