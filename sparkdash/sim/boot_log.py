"""Start-up log of vLLM, line by line, stretched over a profile's load time.

Lines that begin with a carriage return are a tqdm bar's, for stderr.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sparkdash.domain.profile import Profile

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
    for art in (
        "",
        "       █     █     █▄   ▄█",
        " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0+sim",
        f"  █▄█▀ █     █     █     █  model   {profile.name}",
        "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    ):
        yield BootLine(0.0, log_line(API, f"[api_utils.py:347] {art}"))
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
    yield from _shards(0.06, 0.6, load_s, weights)
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
    yield from _graphs(0.82, 0.96, load_s)
    yield from _lines(
        (
            0.96,
            WORKER,
            f"[gpu_model_runner.py:5100] Graph capturing finished in {0.14 * load_s:.0f} secs, took 0.62 GiB",
        ),
        (0.98, CORE, f"[core.py:402] {warmed}"),
        memory=1.0,
    )


def serving(port: int) -> Iterator[str]:
    yield log_line(API, f"[entry.py:140] Starting vLLM server on http://127.0.0.1:{port}")
    yield f"INFO:     Started server process [{os.getpid()}]"
    yield "INFO:     Waiting for application startup."
    yield "INFO:     Application startup complete."


def out_of_memory() -> Iterator[str]:
    yield log_line(CORE, "[core.py:1506] EngineCore failed to start.", "ERROR")
    yield log_line(CORE, "[core.py:1506] Traceback (most recent call last):", "ERROR")
    yield log_line(
        CORE,
        "[core.py:1506] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total "
        "capacity of 121.69 GiB of which 1.12 GiB is free. (simulated)",
        "ERROR",
    )
    yield log_line(
        API,
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "ERROR",
    )


def fatal() -> Iterator[str]:
    yield log_line(CORE, "[core.py:1512] EngineCore encountered a fatal error.", "ERROR")
    yield log_line(
        CORE,
        "[core.py:1512] torch.AcceleratorError: CUDA error: an illegal memory access was encountered (simulated)",
        "ERROR",
    )


def port_in_use(port: int) -> str:
    return log_line(API, f"OSError: [Errno 98] Address already in use: ('127.0.0.1', {port})", "ERROR")


def log_line(who: str, text: str, level: str = "INFO") -> str:
    return f"({who} pid={os.getpid()}) {level} {datetime.now():%m-%d %H:%M:%S} {text}"


def _shards(begin: float, end: float, load_s: float, weights: float) -> Iterator[BootLine]:
    for done in range(SHARDS + 1):
        share = done / SHARDS
        times = _bar_times(share, (end - begin) * load_s)
        text = f"\rLoading safetensors checkpoint shards: {share:4.0%} Completed | {done}/{SHARDS} [{times}, 1.00s/it]"
        yield BootLine(begin + share * (end - begin), text + "\n" * (done == SHARDS), share * weights, bar=True)


def _graphs(begin: float, end: float, load_s: float) -> Iterator[BootLine]:
    for done in range(GRAPHS + 1):
        share = done / GRAPHS
        bar = f"{share:4.0%}|{'█' * done:<{GRAPHS}}| {done}/{GRAPHS}"
        times = _bar_times(share, (end - begin) * load_s)
        text = f"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): {bar} [{times}, 1.00s/it]"
        yield BootLine(begin + share * (end - begin), text + "\n" * (done == GRAPHS), 1.0, bar=True)


def _bar_times(share: float, total_s: float) -> str:
    """Format the spent and the remaining time as tqdm does."""
    spent = share * total_s
    return f"{_clock(spent)}<{_clock(total_s - spent)}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
