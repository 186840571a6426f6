"""Process of one simulated engine: bind, load, serve, stop.

As with vLLM the port is bound but closed until the load is over: clients are refused.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from sparkdash.domain.profile import Profile, SimSpec
from sparkdash.host.processes import proc
from sparkdash.sim.app import App, kv_share
from sparkdash.sim.http_server import serve_http
from sparkdash.units import GIB

API, CORE, WORKER = "APIServer", "EngineCore", "Worker"
SHARDS = 12
GRAPHS = 8


@dataclass(frozen=True, slots=True)
class BootLine:
    """Log line. `at` is its share of the load, `memory` the share of the engine's memory in use by then, both 0..1."""

    at: float
    text: str
    memory: float = 0.0
    bar: bool = False


def _lines(*rows: tuple[float, str, str], memory: float = 0.0) -> Iterator[BootLine]:
    return (BootLine(at, log_line(who, text), memory) for at, who, text in rows)


def opening(profile: Profile, context: int, port: int) -> Iterator[BootLine]:
    args = {"model": profile.name, "host": "127.0.0.1", "port": port, "max_model_len": context}
    config = f"Initializing a V1 LLM engine (v0.32.0+sim) with config: model='{profile.name}'"
    yield from _lines(
        (0.0, API, f"[api_utils.py:286] non-default args: {args}"),
        (0.0, API, "[sim.py:1] SIMULATED engine: no model is loaded, no figure is a measurement"),
        (0.0, API, "[model.py:733] Resolved architecture: SimulatedForCausalLM"),
        (0.02, API, f"[model.py:2152] Using max model len {context}"),
        (0.05, CORE, f"[core.py:133] {config}"),
    )


def loading(
    profile: Profile, *, load_s: float, memory_gib: float, kv_gib: float, kv_tokens: int, context: int
) -> Iterator[BootLine]:
    """Yield lines of weights, drafter, compilation, KV cache and graphs, in vLLM's order."""
    weights = 1.0 - (kv_gib / memory_gib if memory_gib else 0.0)
    drafter = [(0.6, WORKER, "[gpu_model_runner.py:4110] Loading drafter model...")]
    took = f"took {weights * memory_gib:.2f} GiB memory and {0.56 * load_s:.6f} seconds"
    compiling = f"Compiling a graph for compile range (1, 2048) takes {0.08 * load_s:.2f} s"
    room = f"{context:,} tokens per request: {kv_tokens / context:.2f}x"
    cache = f"GPU KV cache size: {kv_tokens:,} tokens, Maximum concurrency for {room}"
    warmed = f"init engine (profile, create kv cache, warmup model) took {0.36 * load_s:.2f} s"
    yield from _lines((0.06, WORKER, f"[gpu_model_runner.py:4100] Starting to load model {profile.name}..."))
    for done, share, times in _bar(SHARDS, 0.54 * load_s):
        shards = f"Loading safetensors checkpoint shards: {share:4.0%} Completed | {done}/{SHARDS} [{times}, 1.00s/it]"
        yield BootLine(0.06 + 0.54 * share, f"\r{shards}" + "\n" * (done == SHARDS), share * weights, bar=True)
    yield from _lines(
        (0.6, WORKER, f"[default_loader.py:501] Loading weights took {0.54 * load_s:.2f} seconds"),
        *(drafter if profile.sim and profile.sim.acceptance else ()),
        (0.62, WORKER, f"[gpu_model_runner.py:4137] Model loading {took}"),
        (0.66, WORKER, f"[backends.py:811] [backbone] Dynamo bytecode transform time: {0.03 * load_s:.2f} s"),
        (0.74, WORKER, f"[backends.py:310] [backbone] {compiling}"),
        (0.75, WORKER, f"[monitor.py:34] torch.compile took {0.12 * load_s:.2f} s in total"),
        (0.78, WORKER, f"[monitor.py:91] [backbone] Initial profiling/warmup run took {0.03 * load_s:.2f} s"),
        (0.79, WORKER, f"[gpu_worker.py:355] Available KV cache memory: {kv_gib:.2f} GiB"),
        memory=weights,
    )
    yield from _lines((0.8, CORE, f"[kv_cache_utils.py:2327] {cache}"), memory=1.0)
    for done, share, times in _bar(GRAPHS, 0.14 * load_s):
        bar = f"{share:4.0%}|{'█' * done:<{GRAPHS}}| {done}/{GRAPHS} [{times}, 1.00s/it]"
        text = f"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): {bar}" + "\n" * (done == GRAPHS)
        yield BootLine(0.82 + 0.14 * share, text, 1.0, bar=True)
    graphs = f"Graph capturing finished in {0.14 * load_s:.0f} secs, took 0.62 GiB"
    yield from _lines(
        (0.96, WORKER, f"[gpu_model_runner.py:5100] {graphs}"), (0.98, CORE, f"[core.py:402] {warmed}"), memory=1.0
    )


def serving_lines(port: int) -> Iterator[str]:
    yield log_line(API, f"[entry.py:140] Starting vLLM server on http://127.0.0.1:{port}")
    yield f"INFO:     Started server process [{os.getpid()}]"
    yield "INFO:     Waiting for application startup."
    yield "INFO:     Application startup complete."


def out_of_memory() -> Iterator[str]:
    yield log_line(CORE, "[core.py:1506] EngineCore failed to start.", "ERROR")
    yield log_line(CORE, "[core.py:1506] Traceback (most recent call last):", "ERROR")
    told = "[core.py:1506] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total"
    yield log_line(CORE, f"{told} capacity of 121.69 GiB of which 1.12 GiB is free. (simulated)", "ERROR")
    told = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    yield log_line(API, told, "ERROR")


def port_in_use(port: int) -> str:
    return log_line(API, f"OSError: [Errno 98] Address already in use: ('127.0.0.1', {port})", "ERROR")


def log_line(who: str, text: str, level: str = "INFO") -> str:
    return f"({who} pid={os.getpid()}) {level} {datetime.now():%m-%d %H:%M:%S} {text}"


def _bar(steps: int, total_s: float) -> Iterator[tuple[int, float, str]]:
    """Yield (steps done, share, the spent and the remaining time as tqdm formats them)."""
    for done in range(steps + 1):
        share = done / steps
        yield done, share, f"{_clock(share * total_s)}<{_clock((1 - share) * total_s)}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


FOLDER_VARIABLE = "SPARKDASH_SIM_DIR"
HEAD_FOLDER_VARIABLE = "SPARKDASH_SIM_HEAD_DIR"
"""Folder of the box that serves, for workers on other simulated boxes."""


@dataclass(frozen=True, slots=True)
class MemoryClaim:
    """Share of the box that one process uses."""

    pid: int
    started: int
    """The kernel's start time of the process, in ticks: a pid that was used again is another process."""
    memory: int
    busy: float
    """Share of the GPU's time, 0..1."""
    profile: str


class ClaimFile:
    """Claim file of one process. Remove it at the end; a claim whose process is gone counts as removed."""

    def __init__(self, profile: str, folder: Path | None = None, pid: int | None = None) -> None:
        place = os.environ.get(FOLDER_VARIABLE)
        self._folder = folder or (Path(place) if place else None)
        self._pid = pid or os.getpid()
        owner = proc.stat(self._pid)
        self._started = owner.ticks if owner else 0
        self._profile = profile
        self._last: MemoryClaim | None = None

    def write(self, memory: int, busy: float = 0.0) -> None:
        claim = MemoryClaim(self._pid, self._started, memory, round(busy, 2), self._profile)
        if self._folder is None or claim == self._last:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f".{self._pid}.part"
        part.write_text(json.dumps(asdict(claim)))
        part.replace(self._folder / f"{self._pid}.json")
        self._last = claim

    def remove(self) -> None:
        if self._folder is not None:
            (self._folder / f"{self._pid}.json").unlink(missing_ok=True)
        self._last = None


def read_claims(folder: Path) -> list[MemoryClaim]:
    """Return the claims of living processes."""
    found = []
    files = [file for file in os.scandir(folder) if file.name.endswith(".json")] if folder.is_dir() else []
    for file in files:
        with contextlib.suppress(OSError, ValueError, TypeError):
            status = file.stat()
            claim = _read_claim(file.path, status.st_ino, status.st_mtime_ns)
            owner = proc.stat(claim.pid)
            if owner and not owner.ended and owner.ticks == claim.started:
                found.append(claim)
    return found


@lru_cache(maxsize=64)
def _read_claim(path: str, *_stamp: int) -> MemoryClaim:
    return MemoryClaim(**json.loads(Path(path).read_bytes()))


CLAIM_S = 0.25
"""Interval of claim checks; the claim is written when it changed."""


async def run_process(profile: Profile, port: int) -> int:
    """Run a whole engine process; return its exit code. Raises ProfileError for an unknown fault."""
    app = App(profile)
    stop = _stop_signal()
    sock = _bind(port)
    if sock is None:
        _print(port_in_use(port))
        return 1
    claim = ClaimWriter(profile, app)
    try:
        return await _until(stop, _work(app, sock, claim))
    finally:
        sock.close()
        claim.remove()


class ClaimWriter:
    """Writes this engine's share of the box: its memory as it loads, and its GPU use."""

    def __init__(self, profile: Profile, app: App) -> None:
        self._app = app
        self._bytes = (profile.sim or SimSpec()).memory_gib * GIB
        self._at, self._spent = time.monotonic(), 0.0
        self._file = ClaimFile(profile.name)
        self.remove = self._file.remove
        self.loaded = 0.0

    def tell(self) -> None:
        now = time.monotonic()
        spent = self._app.engine.work.spent(now)
        share = (spent - self._spent) / max(now - self._at, 1e-3)
        self._at, self._spent = now, spent
        self._file.write(int(self.loaded * self._bytes), min(1.0, share))


async def _work(app: App, sock: socket.socket, holder: ClaimWriter) -> int:
    port = sock.getsockname()[1]
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(_every(CLAIM_S, holder.tell))
        code = await _load(app, port, holder)
        if code:
            telling.cancel()
            return code
        tasks.create_task(app.engine.run())
        site = await serve_http(app.handle, sock, log=_access)
        _say_all(serving_lines(port))
        try:
            await asyncio.Event().wait()
        finally:
            site.close()
    return 0


async def _load(app: App, port: int, holder: ClaimWriter) -> int:
    """Print the load as it proceeds; return 0, or the exit code of a load that dies."""
    spec = app.profile.sim or SimSpec()
    load_s = spec.load_s / spec.time_scale
    lines = chain(
        opening(app.profile, app.context, port),
        loading(
            app.profile, load_s=load_s, memory_gib=spec.memory_gib, kv_gib=kv_share(app.profile) * spec.memory_gib,
            kv_tokens=app.engine.cache.capacity, context=app.context,
        ),
    )  # fmt: skip
    began = time.monotonic()
    for line in lines:
        await _pause(began + line.at * load_s)
        if app.behaviour.stuck_at is not None and line.at >= app.behaviour.stuck_at:
            await asyncio.Event().wait()
        if app.behaviour.dies_at is not None and line.at >= app.behaviour.dies_at:
            _say_all(out_of_memory())
            return 1
        holder.loaded = line.memory or holder.loaded
        _print(line.text, bar=line.bar)
    await _pause(began + load_s)
    holder.loaded = 1.0
    return 0


def _bind(port: int) -> socket.socket | None:
    # asyncio sends small pieces at once only through a socket that says that it is TCP
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        return None
    return sock


def _stop_signal() -> asyncio.Event:
    """Return the event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, int]) -> int:
    """Return the work's result, or 0 once `stop` is set."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    _print("INFO:     Shutting down")
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    _print("INFO:     Application shutdown complete.")
    return 0


async def _every(seconds: float, action: Callable[[], None]) -> None:
    while True:
        action()
        await asyncio.sleep(seconds)


async def _pause(until: float) -> None:
    await asyncio.sleep(max(0.0, until - time.monotonic()))


def _say_all(lines: Iterator[str]) -> None:
    for line in lines:
        _print(line)


def _access(line: str) -> None:
    """Print an access line, except for probes that come every second."""
    if '"GET ' not in line:
        _print(line)


def _print(line: str, *, bar: bool = False) -> None:
    stream = sys.stderr if bar else sys.stdout
    stream.write(line if bar else line + "\n")
    stream.flush()


CONTEXT = 32768


async def run_worker(profile: Profile, port: int) -> int:
    claim = ClaimFile(profile.name)
    try:
        return await _until(_stop_signal(), _worker_work(profile, port, claim))
    finally:
        claim.remove()


async def _worker_work(profile: Profile, port: int, claim: ClaimFile) -> int:
    spec = profile.sim or SimSpec()
    size = spec.memory_gib * GIB
    load_s = spec.load_s / spec.time_scale
    context = profile.context or CONTEXT
    began = time.monotonic()
    lines = list(opening(profile, context, port))
    lines += loading(
        profile, load_s=load_s, memory_gib=spec.memory_gib, kv_gib=0.0, kv_tokens=spec.kv_tokens, context=context
    )
    loaded = 0.0
    for line in lines:
        await _pause(began + line.at * load_s)
        loaded = line.memory or loaded
        claim.write(int(loaded * size))
        _print(line.text, bar=line.bar)
    while True:
        await asyncio.sleep(CLAIM_S)
        claim.write(int(size), _head_use(profile.name))


def _head_use(profile: str) -> float:
    """Return the head's share of its GPU: both ranks compute at the same time."""
    folder = os.environ.get(HEAD_FOLDER_VARIABLE)
    claims = read_claims(Path(folder)) if folder else []
    return next((claim.busy for claim in claims if claim.profile == profile), 0.0)
