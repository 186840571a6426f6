"""Rank of an all-reduce; run inside an image by its own Python, so it uses torch and the standard library alone.

Owns: one rank. It reads {"rank", "ranks", "address", "port", "sizes", "mark", "limit_s"}. Rank 0 prints one line for
each size, which begins with `mark`, as images print banners. A rank ends by itself after `limit_s`, also as PID 1 of a
container, which no alarm would end.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

WARM_UP, LEAST, MOST = 3, 5, 200
SECONDS = 1.0
"""Time that each size should take."""


def main() -> None:
    """Join the other ranks, and measure each size."""
    request = json.loads(sys.argv[1])
    watchdog = threading.Timer(request["limit_s"], os._exit, (3,))
    watchdog.daemon = True
    watchdog.start()
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    gpu = torch.cuda.is_available()
    say({"backend": "nccl" if gpu else "gloo", **versions(torch, gpu)}, request)
    distributed.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=f"tcp://{request['address']}:{request['port']}",
        rank=request["rank"],
        world_size=request["ranks"],
        timeout=timedelta(seconds=60),
    )
    for size in request["sizes"]:
        say({"size": size, **measured(size, request["ranks"], torch, distributed, gpu)}, request)
    distributed.destroy_process_group()
    say({"done": True}, request)


def say(answer: dict[str, Any], request: dict[str, Any]) -> None:
    """Print an answer of rank 0."""
    if request["rank"] == 0:
        sys.stdout.write(request["mark"] + json.dumps(answer) + "\n")
        sys.stdout.flush()


def versions(torch: Any, gpu: bool) -> dict[str, Any]:
    """Versions of torch and NCCL."""
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpu else None
    return {"torch": torch.__version__, "nccl": nccl}


def measured(size: int, ranks: int, torch: Any, distributed: Any, gpu: bool) -> dict[str, Any]:
    """Seconds of one all-reduce of `size` bytes, and whether the sums were right."""
    device = "cuda" if gpu else "cpu"
    values = torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
    distributed.all_reduce(values)
    right = bool((values == ranks).all())
    values.zero_()
    one = timed(values, WARM_UP, torch, distributed, gpu)
    # all ranks must agree on the number of rounds: that of the slowest
    slowest = torch.tensor([one], dtype=torch.float64, device=device)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    rounds = min(MOST, max(LEAST, int(SECONDS / max(float(slowest[0]), 1e-9))))
    return {"seconds": timed(values, rounds, torch, distributed, gpu), "rounds": rounds, "right": right}


def timed(values: Any, rounds: int, torch: Any, distributed: Any, gpu: bool) -> float:
    """Mean seconds of `rounds` all-reduces that follow each other."""
    distributed.barrier()
    if gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(rounds):
        distributed.all_reduce(values)
    if gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / rounds


if __name__ == "__main__":
    main()
