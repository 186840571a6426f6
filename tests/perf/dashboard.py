"""Cost of the dashboard beside btop and htop, in one run, in terminals of 120x40.

    python tests/perf/dashboard.py                # ten minutes; `apt-get install btop htop` first
    python tests/perf/dashboard.py --seconds 10   # shorter spells, rougher shares

A daemon with six simulated engines rests, then answers 32 endless requests, while the dashboard, btop and htop run in terminals of
their own, each drawn once a second. Every cost is the processor time that the kernel counts for the process, so a busy
box does not falsify it; only the time from a key to the screen is wall time. What is not installed is left out.
"""

import argparse
import asyncio
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from statistics import median, quantiles
from typing import NamedTuple

import httpx
import simulated

ENGINES = ("north", "east", "south", "west", "up", "down")
REQUESTS = 32
COLUMNS, ROWS = 120, 40
STARTS = 5
TURNS = 5
"""Spells of the daemon alone and watched, in turns: its own share drifts by more than a watcher costs."""
KEYS = 200
"""Keys whose page is timed: enough for a 95th percentile."""
WAIT_S = 120.0
"""Longest wait for anything that is expected."""
UNWATCHED_S = 17.0
"""After a poll of its state the daemon reads every figure once a second for 15 s, and then more slowly."""
PAGES = {b"3": b" replay", b"1": b" large"}
SPARKDASH = (sys.executable, "-m", "sparkdash")


class Row(NamedTuple):
    """One figure of the table, and the bound that it should stay under."""

    what: str
    value: float
    unit: str
    bound: float | None = None

    def text(self) -> str:
        bound = "" if self.bound is None else f"{self.bound:g} {self.unit}"
        verdict = "" if self.bound is None else "ok" if self.value < self.bound else "OVER"
        return f"{self.what:<52} {f'{self.value:.3g} {self.unit}':>14} {bound:>14} {verdict:>5}"


def processor_s(pid: int) -> float:
    """Return the processor time of a process, all threads, in nanosecond steps (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024 / 1e6


class Terminal:
    """A program in a terminal of 120x40 whose output is read and thrown away."""

    def __init__(self, argv: tuple[str, ...], env: dict[str, str]) -> None:
        self.pid, self._tty = pty.fork()
        if self.pid == 0:
            os.environ.update(env, TERM="xterm-256color", COLORTERM="truecolor")
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.execvp(argv[0], argv)
        self.read_bytes = 0

    def read_until(self, wanted: bytes) -> float:
        """Read until `wanted` was drawn; return the processor time of the program so far."""
        seen, until = b"", time.monotonic() + WAIT_S
        while wanted not in seen:
            if time.monotonic() > until:
                raise SystemExit(f"{wanted!r} was not drawn within {WAIT_S:g} s; the end of what was: {seen[-500:]!r}")
            seen = seen[-20_000:] + self._read(0.01)
        return processor_s(self.pid)

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)

    def press(self, key: bytes) -> None:
        os.write(self._tty, key)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._tty)

    def _read(self, seconds: float) -> bytes:
        if not select.select([self._tty], [], [], seconds)[0]:
            return b""
        try:
            data = os.read(self._tty, 1 << 16)
        except OSError:  # the program has ended
            raise SystemExit("The program in the terminal ended.") from None
        self.read_bytes += len(data)
        return data


@contextmanager
def terminal(argv: tuple[str, ...], env: dict[str, str]) -> Iterator[Terminal]:
    opened = Terminal(argv, env)
    try:
        yield opened
    finally:
        opened.end()


@contextmanager
def process(argv: tuple[str, ...], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program without a terminal and end it."""
    child = subprocess.Popen(argv, env=os.environ | env, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(60)


def serve(folder: str, port: str) -> None:
    """Be the daemon: small engines that run beside one another."""
    simulated.SIZES.clear()
    simulated.SIZES.update(dict.fromkeys(ENGINES, 12.0))
    sys.argv[1:] = [folder, port, "1", "1"]
    simulated.main()


async def load(url: str) -> None:
    """Keep the streams open until this process is ended."""

    async def stream(http: httpx.AsyncClient, place: int) -> None:
        profile, client = ENGINES[place % len(ENGINES)], f"client-{place % 9}"
        body = {"model": profile, "prompt": f"{place} {'word ' * 200}", "max_tokens": 7000, "stream": True}
        while True:
            request = http.stream(
                "POST", "/v1/completions", json=body | {"ignore_eos": True}, headers={"User-Agent": client}
            )
            async with request as reply:
                async for _ in reply.aiter_raw():
                    pass

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http, asyncio.TaskGroup() as group:
        for place in range(REQUESTS):
            group.create_task(stream(http, place))


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not happen within {WAIT_S:g} s.")
        time.sleep(0.1)


def share(pid: int, spend: Callable[[], None]) -> float:
    """Return the share of a core in % that a process takes while `spend` runs."""
    before, at = processor_s(pid), time.monotonic()
    spend()
    return (processor_s(pid) - before) / (time.monotonic() - at) * 100


class Bench:
    """One daemon in a folder of its own, and the figures taken so far."""

    def __init__(self, folder: Path, seconds: float) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        rooms = {
            f"SPARKDASH_{room}_DIR": str(folder / "daemon" / room.lower()) for room in ("CONFIG", "STATE", "RUNTIME")
        }
        # compiled modules are kept, as an installed program's are, whatever the caller's environment says
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        self.env = rooms | compiled | {"SPARKDASH_URL": self.url, "XDG_CONFIG_HOME": str(folder)}
        self.folder, self.seconds = folder, seconds
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S)
        self.rows: list[Row] = []

    def add(self, what: str, value: float, unit: str, bound: float | None = None) -> None:
        self.rows.append(Row(what, value, unit, bound))
        print(self.rows[-1].text(), flush=True)

    def run(self) -> None:
        with process((sys.executable, __file__, "--serve", str(self.folder / "daemon"), self.port), {}) as daemon:
            until(self._is_up, "The daemon's first answer")
            time.sleep(UNWATCHED_S)
            self.add("daemon, no engine", share(daemon.pid, self._wait), "% core", 0.05)
            for name in ENGINES:
                self.http.post("/api/use", json={"profile": name}).raise_for_status()
            until(lambda: len(self._ready()) == len(ENGINES), "Engines that serve")
            time.sleep(UNWATCHED_S)
            self.add("daemon, 6 engines, no request", share(daemon.pid, self._wait), "% core", 0.3)
            self._idle(daemon.pid)
            with process((sys.executable, __file__, "--load", self.url), {}):
                until(lambda: len(self.http.get("/api/state").json()["requests"]) == REQUESTS, "The open requests")
                self._while_busy(daemon.pid)

    def _idle(self, daemon: int) -> None:
        with terminal(SPARKDASH, self.env) as ours:
            ours.read_until(b"tok/s")
            self._spell("dashboard, page 1, no request", ours, bound=0.7)
            told = share(daemon, lambda: ours.read_for(self.seconds))
            self.add("daemon beside it, no request", told, "% core", 0.5)

    def _while_busy(self, daemon: int) -> None:
        time.sleep(UNWATCHED_S)
        self.add("daemon, 32 streams, nobody looks", share(daemon, self._wait), "% core")
        self._starts()
        with terminal(SPARKDASH, self.env) as ours:
            ours.read_until(b"tok/s")
            self._spell("dashboard, page 1", ours, bound=2.0)
            self.add("dashboard, memory", resident_mb(ours.pid), "MB", 90)
            ours.press(b"6")
            self._spell("dashboard, page 6 (charts)", ours)
            ours.press(b"1")
            self._keys(ours)
        self._more("daemon beside one dashboard, more", daemon, self._beside_dashboard)
        self._more("daemon beside one page in a browser, more", daemon, self._beside_page)
        self._others()

    def _spell(self, what: str, shown: Terminal, bound: float | None = None) -> None:
        shown.read_for(4)
        before = shown.read_bytes
        self.add(what, share(shown.pid, lambda: shown.read_for(self.seconds)), "% core", bound)
        self.add("  drawn", (shown.read_bytes - before) / self.seconds / 1000, "kB/s", bound and 6.0)

    def _starts(self) -> None:
        frames, figures = [], []
        for _ in range(STARTS + 1):
            with terminal(SPARKDASH, self.env) as shown:
                frames.append(shown.read_until(b"History"))
                figures.append(shown.read_until(b"tok/s"))
        del frames[0], figures[0]  # the first start compiles
        self.add("first frame, processor time", median(frames), "s", 0.4)
        self.add("first data, processor time", median(figures), "s", 0.8)

    def _keys(self, shown: Terminal) -> None:
        shown.read_for(2)
        took, spent = [], []
        for _ in range(KEYS // len(PAGES)):
            for key, drawn in PAGES.items():
                at, before = time.perf_counter(), processor_s(shown.pid)
                shown.press(key)
                spent.append((shown.read_until(drawn) - before) * 1000)
                took.append((time.perf_counter() - at) * 1000)
                shown.read_for(0.1)
        self.add("key to the next page, wall time, p50", median(took), "ms", 20)
        self.add("key to the next page, wall time, p95", quantiles(took, n=20)[18], "ms", 40)
        self.add("key to the next page, processor time, p50", median(spent), "ms")
        self.add("key to the next page, processor time, p95", quantiles(spent, n=20)[18], "ms")

    def _more(self, what: str, daemon: int, watched: Callable[[int], float]) -> None:
        more = [watched(daemon) - share(daemon, self._wait) for _ in range(TURNS)]
        self.add(what, median(more), "% core")

    def _beside_dashboard(self, daemon: int) -> float:
        with terminal(SPARKDASH, self.env) as shown:
            shown.read_until(b"tok/s")
            return share(daemon, lambda: shown.read_for(self.seconds))

    def _beside_page(self, daemon: int) -> float:
        told = self.folder / "events"
        with process(("curl", "-sN", "-o", str(told), f"{self.url}/api/events"), {}):
            taken = share(daemon, self._wait)
        if (facts := told.read_bytes().count(b"event: fact")) < self.seconds / 2:
            raise SystemExit(f"The page's feed told {facts} facts in {self.seconds:g} s.")
        return taken

    def _others(self) -> None:
        ours = next(row.value for row in self.rows if row.what == "dashboard, page 1")
        settings = self.folder / "btop" / "btop.conf"
        settings.parent.mkdir()
        settings.write_text("update_ms = 1000\n")
        for argv in (("btop",), ("htop", "-d", "10")):
            if which(argv[0]) is None:
                print(f"{argv[0]} is not installed.")
                continue
            with terminal(argv, self.env) as shown:
                self._spell(argv[0], shown)
                taken = self.rows[-2].value
                self.add(f"{argv[0]}, memory", resident_mb(shown.pid), "MB")
            self.add(f"dashboard / {argv[0]}, share of a core", ours / taken, "x")

    def _wait(self) -> None:
        time.sleep(self.seconds)

    def _ready(self) -> list[str]:
        engines = self.http.get("/api/state").json()["engines"]
        return [name for name, engine in engines.items() if engine["state"] == "ready"]

    def _is_up(self) -> bool:
        with suppress(httpx.HTTPError):
            return self.http.get("/health").is_success
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each spell")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
    elif options.load:
        asyncio.run(load(options.load))
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            Bench(Path(folder), options.seconds).run()


if __name__ == "__main__":
    main()
