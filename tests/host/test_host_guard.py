"""The guard's thread: a box whose memory the test writes, and real processes that are really killed."""

import errno
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from sparkdash.domain.container import ContainerInfo, ContainerState
from sparkdash.domain.memory import GuardLevel
from sparkdash.host.memory import wedge_signs
from sparkdash.host.memory.guard import KillTarget, MemoryGuard
from sparkdash.host.memory.guard_decisions import GuardReport, Victim
from sparkdash.settings import Settings

GIB_KB = 1 << 20
SOON = 20
"""Seconds after which a test gives up; the guard looks twice a second."""
TREE = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session={own}, stdin=-3, stdout=-3); print('up', flush=True); sys.stdin.read()"


class Box:
    """A /proc of 121 GiB. Written in place, as the guard keeps the files open."""

    def __init__(self, folder: Path) -> None:
        (folder / "pressure").mkdir(parents=True)
        self.proc = folder
        self.write(60)

    def write(self, available_gib: float, pressure: float | None = 0.0) -> None:
        figures = {"MemTotal:": 121, "MemFree:": 1, "MemAvailable:": available_gib}
        self._put("meminfo", "".join(f"{name:<15}{int(gib * GIB_KB):>12} kB\n" for name, gib in figures.items()))
        text = (
            "" if pressure is None else f"some avg10=0.00\nfull avg10={pressure:05.2f} avg60=0.00 avg300=0.00 total=0\n"
        )
        (self.proc / "pressure/memory").write_text(text)

    def _put(self, name: str, text: str) -> None:
        file = self.proc / name
        with file.open("r+" if file.exists() else "w") as there:
            there.write(text)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "proc")


@pytest.fixture
def guarded(box: Box) -> Iterator[Callable[..., tuple[MemoryGuard, queue.Queue[GuardReport]]]]:
    """Makes a guard that runs, and the queue of what it tells."""
    made: list[MemoryGuard] = []

    def make(
        *, aim: Callable[[GuardReport], object] = lambda _: None, **settings: Any
    ) -> tuple[MemoryGuard, queue.Queue[GuardReport]]:
        reports: queue.Queue[GuardReport] = queue.Queue()
        guard = MemoryGuard(Settings(**settings), box.proc)
        made.append(guard)
        guard.start(reports.put, aim)
        return guard, reports

    yield make
    for guard in made:
        guard.close()


@pytest.fixture
def engine(new_child: Any) -> Callable[..., tuple[subprocess.Popen[str], ContainerInfo]]:
    """Starts a process with a child; `own_session` has the child leave its leader's session."""

    def start(name: str = "a", *, own_session: bool = False) -> tuple[subprocess.Popen[str], ContainerInfo]:
        code = TREE.format(own=own_session)
        process = new_child(sys.executable, "-c", code, stdin=subprocess.PIPE, start_new_session=True)
        return process, ContainerInfo(id=f"{name}-id", name=name, state=ContainerState.RUNNING, pid=process.pid)

    return start


def falling(box: Box, reports: queue.Queue[GuardReport]) -> GuardReport:
    """The first word of the guard while memory falls on from 2 GiB."""
    for step in range(SOON * 10):
        box.write(2 * 0.95**step)
        try:
            return reports.get(timeout=0.1)
        except queue.Empty:
            continue
    raise AssertionError("the guard says nothing")


def victim(container: ContainerInfo, **facts: Any) -> Victim:
    target = KillTarget.of(container)
    return Victim(container.name, container.name, target.kill, **facts)


def test_the_engine_is_killed_with_all_its_processes(box: Box, guarded: Any, engine: Any) -> None:
    guard, reports = guarded()
    process, container = engine(own_session=True)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    watch = os.pidfd_open(int(child))
    guard.watch((victim(container),))
    box.write(4.5)
    report = reports.get(timeout=SOON)
    while report.killed is None:  # a level, when it had not looked before memory fell
        report = reports.get(timeout=SOON)
    assert (report.killed.profile, report.processes, report.level) == ("a", 2, GuardLevel.KILL)
    assert process.wait(SOON) == -9
    assert select.select([watch], [], [], SOON)[0] == [watch]
    os.close(watch)


def test_whom_it_will_kill_is_noted_before_the_kill(box: Box, guarded: Any, engine: Any) -> None:
    """A death may be seen by others sooner than the guard's word of it."""
    process, container = engine()
    aims: list[tuple[str, int | None, bool]] = []
    target = victim(container)
    guard, reports = guarded(aim=lambda r: aims.append((r.killed.profile, r.processes, process.poll() is None)))
    guard.watch((target,))
    box.write(2)
    assert reports.get(timeout=SOON).killed.profile == "a"
    assert aims == [("a", None, True)]
    assert process.wait(SOON) == -9


def test_the_next_one_goes_although_nobody_told_that_the_first_is_gone(box: Box, guarded: Any, engine: Any) -> None:
    """The keeper of the table may hang like everybody else; memory goes on falling."""
    guard, reports = guarded()
    (first, a), (second, b) = engine("a"), engine("b")
    guard.watch((victim(a), victim(b, in_flight=1)))
    box.write(2)
    assert reports.get(timeout=SOON).killed.profile == "a"
    assert falling(box, reports).killed.profile == "b"
    assert (first.wait(SOON), second.wait(SOON)) == (-9, -9)


def test_memory_is_guarded_also_when_the_kernel_stops_telling_its_pressure(box: Box, guarded: Any, engine: Any) -> None:
    guard, reports = guarded()
    process, container = engine()
    box.write(2, pressure=None)
    guard.watch((victim(container),))
    report = reports.get(timeout=SOON)
    assert (report.killed.profile, report.look.pressure, report.error) == ("a", None, None)
    assert process.wait(SOON) == -9


def test_a_guard_that_only_warns_kills_nobody(box: Box, guarded: Any, engine: Any) -> None:
    guard, reports = guarded(guard="warn")
    process, container = engine()
    told = []
    for gib in (1, 6, 10, 60):
        box.write(gib)
        guard.watch((victim(container),))
        told.append(reports.get(timeout=SOON))
    assert [report.level for report in told] == ["kill", "hold", "warn", "ok"]
    assert all(report.killed is None for report in told)
    assert process.poll() is None


def test_other_floors_hold_from_the_next_look_on(box: Box, guarded: Any, engine: Any) -> None:
    guard, reports = guarded(guard="warn")
    process, container = engine()
    box.write(7)
    guard.watch((victim(container),))
    assert reports.get(timeout=SOON).level is GuardLevel.HOLD
    guard.govern(Settings(guard="off", guard_hold_gib=6, guard_kill_gib=4))
    assert reports.get(timeout=SOON).level is GuardLevel.WARN
    assert (guard.mode, process.poll()) == ("warn", None)
    guard.govern(Settings(guard="act", guard_kill_gib=20))
    assert reports.get(timeout=SOON).killed.profile == "a"
    assert process.wait(SOON) == -9


def test_a_guard_that_is_off_has_no_thread(guarded: Any) -> None:
    guarded(guard="off")
    assert "guard" not in {thread.name for thread in threading.enumerate()}


def test_without_an_engine_it_sleeps_and_with_one_it_wakes(box: Box, guarded: Any, engine: Any) -> None:
    guard, reports = guarded(guard="warn")
    box.write(1)
    process, container = engine()
    assert reports.empty()
    guard.watch((victim(container),))
    assert reports.get(timeout=SOON).level is GuardLevel.KILL
    guard.watch(())
    assert reports.get(timeout=SOON).level is GuardLevel.OK
    assert process.poll() is None


def test_a_look_that_fails_is_told_once_and_the_next_one_comes(box: Box, guarded: Any, engine: Any) -> None:
    guard, reports = guarded()
    process, container = engine()
    (box.proc / "meminfo").write_text("nothing of use\n")
    guard.watch((victim(container),))
    assert "MemAvailable" in (reports.get(timeout=SOON).error or "")
    (box.proc / "meminfo").write_text("")
    box.write(2)
    assert reports.get(timeout=SOON).killed.profile == "a"
    assert process.wait(SOON) == -9


def test_a_kernel_without_pressure_figures_will_do(tmp_path: Path) -> None:
    """PSI may be switched off at boot."""
    proc = Box(tmp_path / "other").proc
    (proc / "pressure/memory").unlink()
    MemoryGuard(Settings(), proc).close()


def test_a_box_that_does_not_tell_its_memory_is_refused(tmp_path: Path) -> None:
    with refused("no_meminfo", hint="Linux"):
        MemoryGuard(Settings(), tmp_path)


@pytest.fixture
def reclaiming(box: Box, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has the box win back one page of so many, over times that a test can wait for."""
    monkeypatch.setattr(wedge_signs, "HALF_S", 0.5)
    monkeypatch.setattr(wedge_signs, "APART_S", 0.1)
    done = [0, 0]

    def go_on(ratio: int) -> None:
        done[0], done[1] = done[0] + 100_000 * ratio, done[1] + 100_000
        text = f"allocstall_normal {done[0]}\npgscan_kswapd {done[0]}\npgsteal_kswapd {done[1]}\npgfault 0\npgpgin 0\n"
        (box.proc / "vmstat").write_text(f"nr_free_pages 1\n{text}")

    go_on(1)
    return go_on


def until_told(
    reports: queue.Queue[GuardReport], go_on: Callable[[int], None], ratio: int, patience_s: float = SOON
) -> GuardReport | None:
    """The first word of the guard while the box goes on so."""
    for _ in range(round(patience_s * 10)):
        go_on(ratio)
        with suppress(queue.Empty):
            return reports.get(timeout=0.1)
    return None


def test_a_load_is_stopped_when_the_kernel_wins_hardly_any_page_back(
    box: Box, reclaiming: Any, guarded: Any, engine: Any
) -> None:
    (box.proc / "buddyinfo").write_text("Node 0, zone   Normal " + "9 " * 13 + "3\n")
    guard, reports = guarded()
    (serving, beside), (loading, comes) = engine("serves"), engine("loads")
    guard.watch((victim(beside), victim(comes, serves=False, loads=True)))
    report = until_told(reports, reclaiming, 97)
    assert (report.killed.profile, report.wedge.sign, report.processes) == ("loads", "reclaim", 2)
    assert "won back one page of 97" in report.wedge.evidence
    assert report.blocks == 3
    assert loading.wait(SOON) == -9
    assert serving.poll() is None


def test_nobody_is_stopped_for_a_sign_while_nothing_loads(reclaiming: Any, guarded: Any, engine: Any) -> None:
    guard, reports = guarded()
    process, container = engine()
    guard.watch((victim(container),))
    assert until_told(reports, reclaiming, 97, patience_s=2) is None
    assert process.poll() is None


def test_a_guard_that_only_warns_tells_of_a_sign_once(reclaiming: Any, guarded: Any, engine: Any) -> None:
    guard, reports = guarded(guard="warn")
    process, container = engine()
    guard.watch((victim(container, serves=False, loads=True),))
    report = until_told(reports, reclaiming, 97)
    assert (report.killed, report.wedge.sign) == (None, "reclaim")
    assert until_told(reports, reclaiming, 97, patience_s=2) is None
    assert process.poll() is None


def test_a_load_is_stopped_when_the_driver_is_refused_memory_and_memory_falls(
    box: Box, guarded: Any, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wedge_signs, "FALL_S", 0.5)
    monkeypatch.setattr(wedge_signs, "APART_S", 0.1)
    guard, reports = guarded()
    process, container = engine()
    guard.watch((victim(container, serves=False, loads=True),))
    guard.driver_refused(1)
    with pytest.raises(queue.Empty):
        reports.get(timeout=1.5)
    for step in range(SOON * 10):
        box.write(max(11.9 - step / 10, 8.5))
        with suppress(queue.Empty):
            report = reports.get(timeout=0.05)
            if report.killed is not None:
                break
    assert report.wedge.sign == "driver"
    assert process.wait(SOON) == -9


def test_a_target_that_is_let_go_of_is_not_signalled(engine: Any) -> None:
    """The descriptor may mean something else by then."""
    process, container = engine()
    target = KillTarget.of(container)
    assert target.alive
    target.close()
    assert target.kill() == 0
    assert process.poll() is None


def test_a_daemon_without_a_free_descriptor_kills_the_engine_all_the_same(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The family cannot be listed then; its leader is known, and held."""
    process, container = engine()
    target = KillTarget.of(container)
    assert target is not None

    def full(_: Path) -> Iterator[Path]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", full)
        assert target.kill() == 1
    assert process.wait(SOON) == -9
    target.close()


def test_a_process_that_has_ended_is_no_target() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert KillTarget.of(ContainerInfo(id="x", name="x", state=ContainerState.RUNNING, pid=gone.pid)) is None
    assert KillTarget.of(ContainerInfo(id="x", name="x", state=ContainerState.CREATED)) is None
