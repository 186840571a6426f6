"""The memory guard: a thread that looks at memory twice a second, more often close to the end, and kills an engine before
the kernel stands still.

Owns: the thread, its open files, and the act. Must not know: NVML, the runtime, the event loop; the decision is
`guarding`'s, and what may be killed is handed to it beforehand.

On a Spark an over-commit ends no process: the whole box stands still until somebody pulls the plug. So:
Rule 1: a look is two reads of files that are open already, and a kill is signals to processes known already.
Rule 2: act first, tell after; telling never waits. What is noted before the act is one assignment.
Rule 3: it sleeps without a timer while no engine of ours runs.

Its pages are not locked into memory: that would take a limit that users do not have (8 MiB by default, the interpreter
alone has more), and pages used twice a second are the last that the kernel takes, far under these floors. It shares the
interpreter's lock with the rest of the daemon: nothing here holds that lock while it waits, and calls into NVML and
SQLite let go of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from sparkdash.domain.guard import Floors, GuardLevel
from sparkdash.host import guarding, memory
from sparkdash.host.guarding import EVERY_S, KILL_S, Judge, Look, Report, Target, Verdict, Victim
from sparkdash.host.proc import PROC
from sparkdash.settings import Settings
from sparkdash.units import KIB


class Guard:
    """One for the daemon's life. `watch`, `govern` and `close` may be called from any thread."""

    def __init__(self, settings: Settings, proc: Path = PROC) -> None:
        """Raises HostError when the kernel does not tell its memory. `proc` is given by tests only."""
        self.mode: Literal["off", "warn", "act"] = settings.guard
        self._total = memory.read(proc).total
        self.floors: Floors = guarding.floors(settings, self._total)
        self._judge = Judge(self.floors)
        self._victims: tuple[Victim, ...] = ()
        self._killed: list[Target] = []
        self._needed = threading.Event()
        self._closed = threading.Event()
        self._meminfo = os.open(proc / "meminfo", os.O_RDONLY)
        self._pressure = _opened(proc / "pressure/memory")
        self._thread: threading.Thread | None = None
        self._tell: Callable[[Report], object] = lambda _: None
        self._aim: Callable[[Report], object] = lambda _: None
        self._told: set[str] = set()

    def start(self, tell: Callable[[Report], object], aim: Callable[[Report], object]) -> None:
        """Begin. Both are called in the guard's thread and must not wait: `aim` with whom it kills next, so that whoever
        sees the death before it is told knows why; `tell` with all that happened."""
        if self.mode == "off":
            return
        self._tell, self._aim = tell, aim
        self._thread = threading.Thread(target=self._work, name="guard", daemon=True)
        self._thread.start()

    def watch(self, victims: tuple[Victim, ...]) -> None:
        """What runs now, and what each would cost; replaces what was handed over before. Nothing: the guard sleeps."""
        self._victims = victims
        if victims:
            self._needed.set()
        else:
            self._needed.clear()

    def govern(self, settings: Settings) -> None:
        """Other floors, and `warn` or `act`: whether there is a guard at all stays as it began. Holds from the next look on."""
        self.floors = guarding.floors(settings, self._total)
        self._judge.floors = self.floors
        if "off" not in (self.mode, settings.guard):
            self.mode = settings.guard

    def close(self) -> None:
        """End the thread, and wait until it has."""
        self._closed.set()
        self._needed.set()
        if self._thread is not None:
            self._thread.join()
        for fd in (self._meminfo, self._pressure):
            if fd is not None:
                os.close(fd)

    def _work(self) -> None:
        while not self._closed.is_set():
            again_s = EVERY_S
            try:
                if not self._needed.is_set():
                    self._rest()
                again_s = self._look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look must come
                self._failed(f"{type(error).__name__}: {error}")
            self._closed.wait(again_s)

    def _rest(self) -> None:
        """Nothing to guard: forget what was seen, and sleep."""
        if self._judge.level is not GuardLevel.OK:
            self._say(Report(self._read(), Verdict(GuardLevel.OK, pressed=False, kill=False)))
        self._judge.reset()
        self._killed.clear()
        self._needed.wait()

    def _look(self) -> float:
        """Look and act; seconds until the next look."""
        look, before = self._read(), self._judge.level
        verdict = self._judge.see(look)
        if verdict.kill and self.mode == "act" and self._kill(look, verdict):
            return KILL_S
        if verdict.level is not before:
            self._say(Report(look, verdict))
        return verdict.again_s

    def _kill(self, look: Look, verdict: Verdict) -> bool:
        # the table may be old: who would renew it can hang as everybody else
        left = [victim for victim in self._victims if victim.target not in self._killed]
        victim = guarding.cheapest(left, self.floors.hold - look.available)
        if victim is None:
            return False
        report = Report(look, verdict, victim)
        self._aim(report)
        processes = victim.target.kill()
        self._killed.append(victim.target)
        self._judge.killed(look)
        self._say(replace(report, processes=processes))
        return True

    def _read(self) -> Look:
        available = int(_after(os.pread(self._meminfo, 4096, 0), b"MemAvailable:")) * KIB
        return Look(time.monotonic(), available, self._read_pressure())

    def _read_pressure(self) -> float | None:
        """Good to have; without it memory is guarded all the same."""
        if self._pressure is None:
            return None
        try:
            return float(_after(os.pread(self._pressure, 512, 0), b"full avg10=")) / 100
        except (OSError, ValueError):
            return None

    def _failed(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            nothing = Verdict(self._judge.level, pressed=False, kill=False)
            self._say(Report(Look(time.monotonic(), 0), nothing, error=why))

    def _say(self, report: Report) -> None:
        try:
            self._tell(report)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return


def _opened(path: Path) -> int | None:
    """None where the kernel was built or booted without PSI."""
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None


def _after(text: bytes, word: bytes) -> bytes:
    """The word that follows `word`. Raises ValueError when there is none."""
    _, found, rest = text.partition(word)
    if not found:
        raise ValueError(f"{word.decode()} is missing")
    return rest.split(None, 1)[0]
