"""Memory guard of this node: kills an engine before the box stands still, whether or not the daemon can be reached.

Runs on nodes, with the standard library of Python 3.10 alone: nothing is installed there.

The process leads a session of its own, so the end of the ssh connection does not end it. It ends when the lease has
run out and no engine of ours runs here; as long as one runs, it guards on by the last lease.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkdash.host.guard_rules import KILL, KILL_S, Floors, GuardReading, Judgement, Rules, kill_cost
from sparkdash.host.kernel_figures import MemoryFiles
from sparkdash.nodes.agent.engine_processes import EngineProcesses, start_of
from sparkdash.nodes.agent.guard_files import LEASE, GuardFolder, seconds_since_boot

if TYPE_CHECKING:
    from collections.abc import Iterable

IDLE_S = 2.0
"""Interval of the search for engines' processes, and of looks while there are none."""
LOCK_S = 1.0
"""Wait for the lock, which a look whether a guard runs holds for a moment."""


class KillCandidate(NamedTuple):
    """Container that may be killed, with what the daemon last said of it ({} if nothing)."""

    container: str
    known: dict[str, Any]
    start: int
    """Start of its first process in clock ticks since boot."""


def worst(candidates: Iterable[KillCandidate], lacking: int) -> KillCandidate | None:
    """Choose the container to kill for `lacking` bytes; None without candidates.

    A container that the daemon has not named was started last, and counts as one that loads. Of equal ones the
    youngest goes first.
    """
    return min(candidates, key=lambda each: (*_cost(each.known, lacking), -each.start), default=None)


def _cost(known: dict[str, Any], lacking: int) -> tuple[bool, bool, bool, bool, float, int]:
    told, reload_s = known.get("bytes"), known.get("reload_s")
    return kill_cost(
        serves=bool(known.get("serves", False)),
        pinned=bool(known.get("pinned", False)),
        in_flight=int(known.get("in_flight") or 0),
        size=told if isinstance(told, int) else None,
        reload_s=None if reload_s is None else float(reload_s),
        lacking=lacking,
    )


class StopGuardError(Exception):
    """Raised by a lease that ends the guard: the owner switched it off."""


class NodeGuard:
    """Guard of one owner's engines. Only tests give `proc`."""

    def __init__(self, owner: str, folder: GuardFolder, proc: str = "/proc") -> None:
        self._folder, self._proc = folder, proc
        self._memory, self._processes = MemoryFiles(proc), EngineProcesses(owner, proc)
        self._lease: dict[str, Any] = {}
        self._lease_at = -1
        self._rules: Rules | None = None
        self._engines: dict[str, dict[int, int]] = {}
        self._scanned_at = float("-inf")
        self._dead: set[tuple[int, int]] = set()
        """Processes that were sent SIGKILL, with their starts."""
        self._warned = False
        """Whether the present shortage was reported, where the lease allows no kill."""

    def step(self) -> float | None:
        """Look and act once; return seconds until the next look, or None when there is nothing left to guard."""
        now = seconds_since_boot()
        self._read_lease()
        if now - self._scanned_at >= IDLE_S:
            self._scanned_at = now
            self._engines = self._processes.scan(now)
        if self._rules is None or not self._engines:
            if self._rules is not None:
                self._rules.reset()
            return None if self._is_over(now) else IDLE_S
        return self._look(self._rules)

    def _is_over(self, now: float) -> bool:
        age = now - float(self._lease.get("renewed") or 0)
        return age > float(self._lease.get("ttl_s") or 0)

    def _read_lease(self) -> None:
        at = self._folder.changed_at(LEASE)
        if at == self._lease_at:
            return
        self._lease_at = at
        found = self._folder.read(LEASE)
        if found is None:
            return
        if found.get("stop"):
            raise StopGuardError
        if not found.get("floors"):
            return
        self._lease, floors = found, Floors(**found["floors"])
        if self._rules is None:
            self._rules = Rules(floors)
        self._rules.floors = floors

    def _look(self, rules: Rules) -> float:
        look = self._memory.look()
        judged = rules.see(look)
        if judged.kill and self._lease.get("act", True):
            if self._kill(rules, look, judged):
                return KILL_S
        elif judged.kill and not self._warned:
            self._warned = True
            self._report(look, judged, None, None)
        if judged.level < KILL:
            self._warned = False
        return judged.again_s

    def _kill(self, rules: Rules, look: GuardReading, judged: Judgement) -> bool:
        known = {str(each.get("container")): each for each in self._lease.get("engines") or ()}
        candidates = [
            KillCandidate(name, known.get(name, {}), min(alive.values())) for name, alive in self._living().items()
        ]
        victim = worst(candidates, rules.floors.hold - look.available)
        if victim is None:
            return False
        killed = self._end(victim.container)
        rules.killed(look)
        self._report(look, judged, victim, killed)
        self._scanned_at = float("-inf")  # processes that it started meanwhile are found at the next look
        return True

    def _living(self) -> dict[str, dict[int, int]]:
        """Processes that live now: the last scan is up to IDLE_S old, and a kill of a dead one would be waited for."""
        found = {}
        for name, processes in self._engines.items():
            alive = {
                pid: start
                for pid, start in processes.items()
                if (pid, start) not in self._dead and start_of(pid, self._proc) == start
            }
            if alive:
                found[name] = alive
        return found

    def _end(self, container: str) -> int:
        """Send SIGKILL to all processes of a container, the first one first; return the number that got it."""
        killed = 0
        for pid, start in sorted(self._engines[container].items(), key=lambda item: item[1]):
            self._dead.add((pid, start))
            now = start_of(pid, self._proc)
            if now is not None and now != start:
                continue  # another process has its pid
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # ended with the first one
                killed += 1
            except OSError:  # another user's
                continue
            else:
                killed += 1
        return killed

    def _report(self, look: GuardReading, judged: Judgement, victim: KillCandidate | None, killed: int | None) -> None:
        assert self._rules is not None  # noqa: S101 - a look has been judged
        with suppress(OSError):  # a full disk must not end the guard
            self._folder.report_kill(
                {
                    "clock": time.time(),
                    "container": victim.container if victim else None,
                    "profile": victim.known.get("profile") if victim else None,
                    "available": look.available,
                    "pressure": look.pressure,
                    "fall": judged.fall,
                    "floor": self._rules.floors.kill,
                    "processes": killed,
                }
            )


def guard(owner: str, folder: GuardFolder) -> None:
    guarding, failed = NodeGuard(owner, folder), 0
    while True:
        try:
            again_s = guarding.step()
        except StopGuardError:
            return
        except (OSError, ValueError, KeyError, TypeError):  # a torn read, a damaged lease: the next look must come
            again_s, failed = IDLE_S / 4, failed + 1
            if failed > 10_000:
                return
        if again_s is None:
            return
        time.sleep(again_s)


def run(owner: str) -> None:
    """Read a lease from stdin, detach from the connection, and guard; say on stdout what happened."""
    lease = json.loads(sys.stdin.buffer.readline() or b"{}")
    try:
        folder = GuardFolder(owner)
        folder.renew(lease)
        held = folder.lock(LOCK_S)
    except OSError as error:
        sys.stdout.write(json.dumps({"failed": str(error)}) + "\n")
        sys.stdout.flush()
        os._exit(1)
    if held is None:
        sys.stdout.write('{"guard": "runs already"}\n')
        sys.stdout.flush()
        os._exit(0)
    if os.fork():
        sys.stdout.write('{"guard": "started"}\n')
        sys.stdout.flush()
        os._exit(0)
    _detach()
    try:
        guard(owner, folder)
    finally:
        os._exit(0)


def _detach() -> None:
    """Leave the connection's session and streams, and be the last one that the kernel ends for lack of memory."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # root alone may
        file.write("-900")
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)  # as above
