"""Samples and requests of an invented past, and the same figures added up independently of the store."""

import math
from collections.abc import Iterable

from sparkdash.domain.metric import Energy, EngineSample, Gpu, Memory, Metric, Sample
from sparkdash.domain.request import Request, RequestState

START = 1_790_002_800
"""A full hour of the past, 15:00 of a day in UTC."""


def decode_at(second: float) -> float:
    """Decode rate of the engine: waves over minutes and hours, and a spike of one second now and then."""
    spike = 900.0 if int(second) % 500 == 0 else 0.0
    return 40.0 + 30.0 * math.sin(second / 70) + 10.0 * math.sin(second / 5000) + spike


def sample(at: float, engine: str | None = "alpha") -> Sample:
    values: dict[Metric, float | None] = {
        Metric.DECODE: decode_at(at), Metric.KV_USED: 0.5 + 0.4 * math.sin(at / 300), Metric.WAITING: None,
        Metric.RUNNING: 1.0,
    }  # fmt: skip
    return Sample(
        at=at,
        engines={engine: EngineSample(at=at, values=values)} if engine else {},
        memory=Memory(total=2**37, available=2**36 + int(at) % 1000 * 2**20, free=2**30),
        gpu=Gpu(power_w=20.0 + int(at) % 60),
        energy=Energy(sensor="GPU only", since=START, busy_wh=(at - START) / 100, idle_wh=3.0),
    )


def buckets(values: Iterable[tuple[float, float]], step: int) -> dict[int, tuple[int, float, float, float]]:
    """Count, minimum, mean and maximum by the beginning of each bucket, in plain sums."""
    found: dict[int, list[float]] = {}
    for at, value in values:
        found.setdefault(int(at // step) * step, []).append(value)
    return {start: (len(those), min(those), sum(those) / len(those), max(those)) for start, those in found.items()}


def asked(number: int, at: float, *, profile: str = "alpha", client: str = "codex", **rest: object) -> Request:
    fields: dict[str, object] = {
        "id": f"{number:08x}", "client": client, "profile": profile, "route": "/v1/chat/completions",
        "state": RequestState.DONE, "started_at": at, "granted_at": at + 0.01, "finished_at": at + 4.0, "status": 200,
        "prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 100, "reasoning_tokens": 10,
        "ttft_s": 0.5, "decode_tok_s": 50.0, "stream": True,
    }  # fmt: skip
    return Request(**(fields | rest))  # type: ignore[arg-type]
