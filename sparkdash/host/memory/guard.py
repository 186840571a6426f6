"""Thread of the memory guard: reads memory twice a second, and kills an engine before the kernel freezes.

`guard_decisions` and `wedge_signs` decide, and the engines that may be killed are handed over beforehand.

On a Spark an over-commit ends no process: the whole box freezes until it is unplugged. So:
Rule 1: a look reads files that are already open, and a kill signals processes that are already known.
Rule 2: act first, report after; a report never waits. Only one assignment precedes the act.
Rule 3: the thread sleeps without a timer while no engine of ours runs.

Its pages are not locked into memory: users' limit is too low (8 MiB by default, less than the interpreter). The kernel
reclaims pages that are used twice a second last, far below these floors. The thread shares the interpreter's lock with
the daemon: nothing here holds that lock while waiting, and calls into NVML and SQLite release it.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from resource import getpagesize
from typing import Literal

from sparkdash.domain.container import ContainerInfo
from sparkdash.domain.memory import Floors
from sparkdash.host import meminfo
from sparkdash.host.guard_rules import EVERY_S, KILL_S, OK, GuardReading, Judgement, Rules
from sparkdash.host.kernel_figures import MemoryFiles, open_optional
from sparkdash.host.memory import contiguity, guard_decisions
from sparkdash.host.memory.guard_decisions import GuardReport, Victim, rule_floors
from sparkdash.host.memory.wedge_signs import Sign, Signs, Vitals
from sparkdash.host.processes import proc
from sparkdash.host.processes.proc import PROC
from sparkdash.settings import Settings
from sparkdash.units import KIB

SCANNED = (b"\npgscan_kswapd ", b"\npgscan_direct ")
RECLAIMED = (b"\npgsteal_kswapd ", b"\npgsteal_direct ")
STALLS = (
    b"\nallocstall ",
    b"\nallocstall_normal ",
    b"\nallocstall_movable ",
    b"\nallocstall_dma32 ",
    b"\nallocstall_dma ",
)


class VitalsFiles:
    """Open files, owned by the guard's thread; `close` after its end."""

    def __init__(self, proc: Path) -> None:
        """Raises OSError without /proc/meminfo; the other files are optional."""
        self._memory = MemoryFiles(str(proc))
        self.look = self._memory.look
        self._vmstat = open_optional(f"{proc}/vmstat")
        self._buddyinfo = open_optional(f"{proc}/buddyinfo")

    def vitals(self, driver_lines: int, said_at: float | None) -> Vitals:
        """Read all figures that may announce a freeze. Raises OSError, ValueError."""
        vmstat = b"" if self._vmstat is None else b"\n" + os.pread(self._vmstat, 32 * KIB, 0)
        read = _sum(vmstat, (b"\npgpgin ",))
        return Vitals(
            at=time.monotonic(),
            available=self._memory.figure(b"MemAvailable:"),
            free=self._memory.figure(b"MemFree:"),
            scanned=_sum(vmstat, SCANNED),
            reclaimed=_sum(vmstat, RECLAIMED),
            stalls=_sum(vmstat, STALLS),
            read_bytes=None if read is None else read * KIB,
            faults=_sum(vmstat, (b"\npgfault ",)),
            driver_lines=driver_lines,
            said_at=said_at,
        )

    def blocks(self) -> int | None:
        """Free blocks of 32 MiB; None if the kernel does not report them."""
        if self._buddyinfo is None:
            return None
        try:
            text = os.pread(self._buddyinfo, 64 * KIB, 0).decode(errors="replace")
        except OSError:
            return None
        seen = contiguity.parse_contiguity(text, "", getpagesize())
        return None if seen is None else seen.blocks

    def close(self) -> None:
        self._memory.close()
        for fd in (self._vmstat, self._buddyinfo):
            if fd is not None:
                os.close(fd)


def _sum(vmstat: bytes, names: Iterable[bytes]) -> int | None:
    found = [int(line) for name in names if (line := vmstat.partition(name)[2].partition(b"\n")[0]).isdigit()]
    return sum(found) if found else None


class MemoryGuard:
    """Guard for the life of the daemon. `close` may be called from any thread, all other methods from one."""

    def __init__(self, settings: Settings, proc: Path = PROC) -> None:
        """Raises HostError if the kernel does not report its memory. Only tests give `proc`."""
        self.mode: Literal["off", "warn", "act"] = settings.guard
        self._total = meminfo.read_memory(proc).total
        self.floors: Floors = guard_decisions.choose_floors(settings, self._total)
        self._rules = Rules(rule_floors(self.floors))
        self._victims: tuple[Victim, ...] = ()
        self._killed: list[Callable[[], int]] = []
        self._needed = threading.Event()
        self._closed = threading.Event()
        self._files = VitalsFiles(proc)
        self._driver_lines = 0
        """Lines of the kernel's log since the start of a load in which the driver was refused memory."""
        self._said_at: float | None = None
        """Time of the last log line of a load."""
        self._signs = Signs()
        self._warned: set[Sign] = set()
        """Signs of the present load that were reported, if the guard only warns."""
        self._thread: threading.Thread | None = None
        self._tell: Callable[[GuardReport], object] = lambda _: None
        self._aim: Callable[[GuardReport], object] = lambda _: None
        self._told: set[str] = set()

    def start(self, tell: Callable[[GuardReport], object], aim: Callable[[GuardReport], object]) -> None:
        """Start the thread, which calls both functions; neither may wait.

        `aim` gets each kill beforehand, so that an observer of the death knows its reason. `tell` gets every report.
        """
        if self.mode == "off":
            return
        self._tell, self._aim = tell, aim
        self._thread = threading.Thread(target=self._work, name="guard", daemon=True)
        self._thread.start()

    def watch(self, victims: tuple[Victim, ...]) -> None:
        """Replace the engines that may be killed, each with its cost; without engines the guard sleeps."""
        loads = _loading(victims)
        if loads and not _loading(self._victims):
            self._driver_lines, self._said_at = 0, time.monotonic()
        self._victims = victims
        if victims:
            self._needed.set()
        else:
            self._needed.clear()

    def heard_load(self) -> None:
        self._said_at = time.monotonic()

    def driver_refused(self, lines: int) -> None:
        """Note new lines of the kernel's log in which the GPU's driver was refused memory."""
        self._driver_lines += lines

    def govern(self, settings: Settings) -> None:
        """Apply changed floors and the mode `warn` or `act` from the next look on; `off` needs a restart."""
        self.floors = guard_decisions.choose_floors(settings, self._total)
        self._rules.floors = rule_floors(self.floors)
        if "off" not in (self.mode, settings.guard):
            self.mode = settings.guard

    def close(self) -> None:
        self._closed.set()
        self._needed.set()
        if self._thread is not None:
            self._thread.join()
        self._files.close()

    def _work(self) -> None:
        while not self._closed.is_set():
            again_s = EVERY_S
            try:
                if not self._needed.is_set():
                    self._rest()
                again_s = self._look()
            except Exception as error:  # noqa: BLE001 - the next look must come after any failure
                self._failed(f"{type(error).__name__}: {error}")
            self._closed.wait(again_s)

    def _rest(self) -> None:
        """Forget earlier readings and sleep until there are engines again."""
        if self._rules.level != OK:
            self._say(GuardReport(self._files.look(), Judgement(OK, pressed=False, kill=False)))
        self._rules.reset()
        self._signs.reset()
        self._killed.clear()
        self._needed.wait()

    def _look(self) -> float:
        look, before = self._files.look(), self._rules.level
        verdict = self._rules.see(look)
        # the engines may be outdated: the thread that would renew them may hang
        left = [victim for victim in self._victims if victim.kill not in self._killed]
        if verdict.kill and self.mode == "act" and self._kill(GuardReport(look, verdict), left):
            return KILL_S
        if verdict.level != before:
            self._say(GuardReport(look, verdict))
        loads = _loading(left)
        if loads:
            return KILL_S if self._stop_load(GuardReport(look, verdict), loads) else verdict.again_s
        self._signs.reset()
        self._warned.clear()
        return verdict.again_s

    def _stop_load(self, report: GuardReport, loads: list[Victim]) -> bool:
        """Stop the cheapest load at a sign that the box is about to freeze."""
        vitals = self._files.vitals(self._driver_lines, self._said_at)
        wedge = self._signs.see(vitals, self.floors.warn)
        if wedge is None:
            return False
        report = replace(report, wedge=wedge)
        if self.mode == "act":
            self._signs.reset()
            return self._kill(report, loads)
        if wedge.sign not in self._warned:
            self._warned.add(wedge.sign)
            self._say(report)
        return False

    def _kill(self, report: GuardReport, left: list[Victim]) -> bool:
        look = report.look
        victim = guard_decisions.cheapest_victim(left, self.floors.hold - look.available)
        if victim is None:
            return False
        report = replace(report, killed=victim)
        self._aim(report)
        processes = victim.kill()
        self._killed.append(victim.kill)
        self._rules.killed(look)
        blocks = self._files.blocks() if report.wedge else None
        self._say(replace(report, processes=processes, blocks=blocks))
        return True

    def _failed(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            nothing = Judgement(self._rules.level, pressed=False, kill=False)
            self._say(GuardReport(GuardReading(time.monotonic(), 0), nothing, error=why))

    def _say(self, report: GuardReport) -> None:
        try:
            self._tell(report)
        except RuntimeError:  # the loop is closed
            return


def _loading(victims: Iterable[Victim]) -> list[Victim]:
    return [victim for victim in victims if victim.loads]


class KillTarget:
    """Processes of one engine, held so that a later kill finds them. Safe to use from any thread."""

    def __init__(self, pid: int, birth: str, fd: int) -> None:
        self._pid = pid
        self._birth = birth
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def of(cls, container: ContainerInfo) -> "KillTarget | None":
        """Open a running container or process; None if it has ended or its runtime reported no pid."""
        if container.pid is None:
            return None
        try:
            fd = os.pidfd_open(container.pid)
        except OSError:
            return None
        birth = proc.birth(container.pid)
        if birth is None:
            os.close(fd)
            return None
        return cls(container.pid, birth, fd)

    @property
    def alive(self) -> bool:
        now = proc.stat(self._pid)
        return now is not None and not now.ended and proc.birth(self._pid) == self._birth

    def kill(self) -> int:
        """Send SIGKILL to every process; return their number, 0 if none may be signalled. Never waits, never raises."""
        with self._lock:
            if self._closed:
                return 0
            # listed before the kill, as the end of the leader orphans its children; the leader goes first, as it might
            # end or start others when it loses them
            others = self._others()
            leader = _gone(partial(signal.pidfd_send_signal, self._fd, signal.SIGKILL))
            return leader + sum(_gone(partial(os.kill, pid, signal.SIGKILL)) for pid in others)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)

    def _others(self) -> set[int]:
        """Other processes of the engine; empty if they cannot be listed for lack of descriptors."""
        if proc.birth(self._pid) not in (None, self._birth):
            return set()
        with contextlib.suppress(OSError):
            return proc.family(self._pid) - {self._pid}
        return set()


def _gone(send: Callable[[], None]) -> bool:
    try:
        send()
    except ProcessLookupError:  # ended since it was listed, mostly together with its leader
        return True
    except OSError:  # a process of another user
        return False
    return True
