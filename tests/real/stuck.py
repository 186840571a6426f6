"""What the tests of stuck real engines share: requests on an engine, a way to stop it, and what became of all."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sparkdash import paths
from sparkdash.domain.container import ENV_MARK
from sparkdash.supervisor.liveness import Thresholds

HURRY = float(os.environ.get("SPARKDASH_HURRY", "10"))
"""How many times shorter the thresholds are; SPARKDASH_HURRY=1 for those that people meet."""
PROGRAM = (str(Path(__file__).parents[1] / "shared" / "hurried.py"), str(HURRY))
STOPPED_S = Thresholds().stopped_s / HURRY
SILENT_S = Thresholds().slow_s / HURRY
NAMED_S = 30.0
"""How long after its threshold an engine may be named."""
LONG = 3500
"""Tokens of an answer that is still under way when the engine is stopped."""


@dataclass
class Seen:
    """What came of a stuck engine and its requests."""

    stopped_at: float
    stream: httpx.Response
    unary: httpx.Response
    incident: dict[str, Any]

    def check(self, spark: Any, model: str, *, named_s: float) -> None:
        """Named in time and over; the stream is told why, the other request answered, and so is the next."""
        assert self.incident["named_at"] - self.stopped_at < named_s + NAMED_S
        assert self.incident["ended_at"] is not None
        assert (self.stream.status_code, self.unary.status_code) == (200, 200), (self.stream.text, self.unary.text)
        assert b'"code":"engine_stuck"' in self.stream.content.replace(b": ", b":"), self.stream.content[-600:]
        assert self.unary.json()["usage"]["completion_tokens"] == 8
        assert answer(spark, model, 8, stream=False).status_code == 200
        took = self.incident["ended_at"] - self.stopped_at
        print(
            f"\n{model}: named {self.incident['named_at'] - self.stopped_at:.1f} s after it was stopped,"
            f" {self.incident['end']} after {took:.1f} s: {self.incident['why']}"
        )


def answer(spark: Any, model: str, tokens: int, *, stream: bool) -> httpx.Response:
    """One chat."""
    body = {
        "model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": tokens, "temperature": 1,
        "ignore_eos": True, "stream": stream,
    }  # fmt: skip
    return httpx.post(f"{spark.url}/v1/chat/completions", json=body, timeout=300)


def stuck(spark: Any, model: str, way: Callable[[Any], Callable[[], object]]) -> Seen:
    """A stream that has begun and a request that has not, on an engine that is stopped in this way."""
    first = answer(spark, model, 8, stream=False)
    assert first.status_code == 200, first.text
    stop = way(spark)  # what takes time is found out before the stream begins
    known = {incident["id"] for incident in spark.state()["incidents"]}
    with ThreadPoolExecutor(2) as threads:
        stream = begun(spark, model, threads)
        stop()
        stopped_at = time.time()
        unary = threads.submit(answer, spark, model, 8, stream=False)

        def over(state: dict[str, Any]) -> list[dict[str, Any]]:
            return [one for one in state["incidents"] if one["id"] not in known and one["ended_at"] is not None]

        state = spark.until(over, timeout=240)
        return Seen(stopped_at, stream.result(), unary.result(), over(state)[0])


def begun(spark: Any, model: str, threads: ThreadPoolExecutor) -> Future[httpx.Response]:
    """A long stream whose first piece has been relayed."""
    for _ in range(20):
        asked = threads.submit(answer, spark, model, LONG, stream=True)
        spark.until(
            lambda state, asked=asked: (
                asked.done() or "streaming" in [row["state"] for row in state["requests"].values()]
            )
        )
        if not asked.done():
            return asked
    raise AssertionError("the engine was never seen at work")


def processes(spark: Any) -> dict[int, str]:
    """Every process of an engine of this daemon, with its command line."""
    mark = f"{ENV_MARK}={paths.owner(spark.root / 'state')}/".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it has ended meanwhile
            continue
    return found


def whole(spark: Any) -> Callable[[], object]:
    """Stops all processes of the daemon's engines."""
    pids = processes(spark)
    assert pids
    return lambda: [os.kill(pid, signal.SIGSTOP) for pid in pids]


def long_prompt(spark: Any, model: str) -> tuple[int, float]:
    """A prompt that fills the context; its status, and the seconds until its one token."""
    begun_at = time.monotonic()
    body = {"model": model, "prompt": "spark memory engine stream " * 950, "max_tokens": 1}
    status = httpx.post(f"{spark.url}/v1/completions", json=body, timeout=300).status_code
    return status, time.monotonic() - begun_at
