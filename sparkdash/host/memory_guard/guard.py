"""The memory guard: a thread that looks at memory twice a second, more often close to the end, and kills an engine before
the kernel stands still.

Owns: the thread, its open files, and the act. Must not know: NVML, the runtime, the event loop; the decisions are
`decisions`' and `wedge_signs`', and what may be killed is handed to it beforehand.

On a Spark an over-commit ends no process: the whole box stands still until somebody pulls the plug. So:
Rule 1: a look is reads of files that are open already, and a kill is signals to processes known already.
Rule 2: act first, tell after; telling never waits. What is noted before the act is one assignment.
Rule 3: it sleeps without a timer while no engine of ours runs, and for up to SLOW_S while none loads, where the kernel
itself wakes it at pressure.

Its pages are not locked into memory: that would take a limit that users do not have (8 MiB by default, the interpreter
alone has more), and pages used twice a second are the last that the kernel takes, far under these floors. It shares the
interpreter's lock with the rest of the daemon: nothing here holds that lock while it waits, and calls into NVML and
SQLite let go of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from sparkdash.domain.memory.guard import Floors, GuardLevel
from sparkdash.host import meminfo
from sparkdash.host.memory_guard import decisions
from sparkdash.host.memory_guard.decisions import (
    EVERY_S,
    KILL_S,
    PRESSED_S,
    GuardJudge,
    GuardReading,
    GuardReport,
    GuardTarget,
    GuardVerdict,
    Victim,
)
from sparkdash.host.memory_guard.pressure_alarm import PressureAlarm, open_trigger
from sparkdash.host.memory_guard.vitals import VitalsFiles
from sparkdash.host.memory_guard.wedge_signs import Sign, Signs
from sparkdash.host.processes.proc import PROC
from sparkdash.settings import Settings


class MemoryGuard:
    """One for the daemon's life. `close` may be called from any thread, all else from one."""

    def __init__(
        self, settings: Settings, proc: Path = PROC, trigger: Callable[[Path], int | None] = open_trigger
    ) -> None:
        """Raises HostError when the kernel does not tell its memory. `proc` and `trigger` are given by tests only."""
        self.mode: Literal["off", "warn", "act"] = settings.guard
        self._total = meminfo.read(proc).total
        self.floors: Floors = decisions.floors(settings, self._total)
        self._judge = GuardJudge(self.floors)
        self._victims: tuple[Victim, ...] = ()
        self._killed: list[GuardTarget] = []
        self._needed = threading.Event()
        self._closed = threading.Event()
        self._files = VitalsFiles(proc)
        self._alarm = PressureAlarm(trigger(proc / "pressure/memory"))
        self._pressed_at = float("-inf")
        self._driver_lines = 0
        """Lines of the kernel's log since a load began in which the driver was refused memory."""
        self._said_at: float | None = None
        """When a load last wrote a line."""
        self._signs = Signs()
        self._warned: set[Sign] = set()
        """Signs of the present load that were told, where a guard only warns."""
        self._thread: threading.Thread | None = None
        self._tell: Callable[[GuardReport], object] = lambda _: None
        self._aim: Callable[[GuardReport], object] = lambda _: None
        self._told: set[str] = set()

    def start(self, tell: Callable[[GuardReport], object], aim: Callable[[GuardReport], object]) -> None:
        """Begin. Both are called in the guard's thread and must not wait: `aim` with whom it kills next, so that whoever
        sees the death before it is told knows why; `tell` with all that happened."""
        if self.mode == "off":
            return
        self._tell, self._aim = tell, aim
        self._thread = threading.Thread(target=self._work, name="guard", daemon=True)
        self._thread.start()

    def watch(self, victims: tuple[Victim, ...]) -> None:
        """What runs now, and what each would cost; replaces what was handed over before. Nothing: the guard sleeps."""
        loads = _loading(victims)
        if loads and not _loading(self._victims):
            self._driver_lines, self._said_at = 0, time.monotonic()
        self._victims = victims
        if victims:
            self._needed.set()
            if loads:  # it may sleep for longer than a load can be left alone
                self._alarm.call()
        else:
            self._needed.clear()

    def heard_load(self) -> None:
        """Note that an engine that loads wrote a line."""
        self._said_at = time.monotonic()

    def driver_refused(self, lines: int) -> None:
        """Note new lines of the kernel's log in which the GPU's driver was refused memory."""
        self._driver_lines += lines

    def govern(self, settings: Settings) -> None:
        """Other floors, and `warn` or `act`: whether there is a guard at all stays as it began. Holds from the next look on."""
        self.floors = decisions.floors(settings, self._total)
        self._judge.floors = self.floors
        if "off" not in (self.mode, settings.guard):
            self.mode = settings.guard

    def close(self) -> None:
        """End the thread, and wait until it has."""
        self._closed.set()
        self._needed.set()
        self._alarm.call()
        if self._thread is not None:
            self._thread.join()
        self._files.close()
        self._alarm.close()

    def _work(self) -> None:
        while not self._closed.is_set():
            again_s = EVERY_S
            try:
                if not self._needed.is_set():
                    self._rest()
                again_s = self._look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look must come
                self._failed(f"{type(error).__name__}: {error}")
            if not self._closed.is_set() and self._alarm.wait(again_s):
                self._pressed_at = time.monotonic()

    def _rest(self) -> None:
        """Nothing to guard: forget what was seen, and sleep."""
        if self._judge.level is not GuardLevel.OK:
            self._say(GuardReport(self._files.look(), GuardVerdict(GuardLevel.OK, pressed=False, kill=False)))
        self._judge.reset()
        self._signs.reset()
        self._killed.clear()
        self._needed.wait()

    def _look(self) -> float:
        """Look and act; seconds until the next look."""
        look, before = self._files.look(), self._judge.level
        verdict = self._judge.see(look)
        # the table may be old: who would renew it can hang as everybody else
        left = [victim for victim in self._victims if victim.target not in self._killed]
        if verdict.kill and self.mode == "act" and self._kill(GuardReport(look, verdict), left):
            return KILL_S
        if verdict.level is not before:
            self._say(GuardReport(look, verdict))
        loads = _loading(left)
        if not loads:
            self._signs.reset()
            self._warned.clear()
            rests = self._alarm.has_trigger and look.at - self._pressed_at > PRESSED_S
            return decisions.pause(verdict, look, self.floors) if rests else verdict.again_s
        return KILL_S if self._stop_load(GuardReport(look, verdict), loads) else verdict.again_s

    def _stop_load(self, report: GuardReport, loads: list[Victim]) -> bool:
        """Stop the load that costs least on a sign that the box is about to stand still."""
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
        victim = decisions.cheapest(left, self.floors.hold - look.available)
        if victim is None:
            return False
        report = replace(report, killed=victim)
        self._aim(report)
        processes = victim.target.kill()
        self._killed.append(victim.target)
        self._judge.killed(look)
        blocks = self._files.blocks() if report.wedge else None
        self._say(replace(report, processes=processes, blocks=blocks))
        return True

    def _failed(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            nothing = GuardVerdict(self._judge.level, pressed=False, kill=False)
            self._say(GuardReport(GuardReading(time.monotonic(), 0), nothing, error=why))

    def _say(self, report: GuardReport) -> None:
        try:
            self._tell(report)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return


def _loading(victims: Iterable[Victim]) -> list[Victim]:
    return [victim for victim in victims if victim.loads]
