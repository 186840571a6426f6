"""Parts of the tests of stuck real engines: requests on an engine, a way to stop it, and what became of all."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from figures import processes

from sparkdash.supervisor.decide.judge import Thresholds

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
    """Outcome of a stuck engine and its requests."""

    stopped_at: float
    stream: bytes
    unary: httpx.Response
    incident: dict[str, Any]

    def check(self, spark: Any, model: str, *, named_s: float) -> None:
        """Named in time and over; the stream is told why, the other request answered, and so is the next."""
        assert self.incident["named_at"] - self.stopped_at < named_s + NAMED_S
        assert self.incident["ended_at"] is not None
        assert self.unary.status_code == 200, self.unary.text
        assert b'"code":"engine_stuck"' in self.stream.replace(b": ", b":"), self.stream[-600:]
        assert self.unary.json()["usage"]["completion_tokens"] == 8
        assert answer(spark, model, 8).status_code == 200
        took = self.incident["ended_at"] - self.stopped_at
        print(
            f"\n{model}: named {self.incident['named_at'] - self.stopped_at:.1f} s after it was stopped,"
            f" {self.incident['end']} after {took:.1f} s: {self.incident['why']}"
        )


def asks(model: str, tokens: int, *, stream: bool) -> dict[str, Any]:
    return {
        "model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": tokens, "temperature": 1,
        "ignore_eos": True, "stream": stream,
    }  # fmt: skip


def answer(spark: Any, model: str, tokens: int) -> httpx.Response:
    body = asks(model, tokens, stream=False)
    return httpx.post(f"{spark.url}/v1/chat/completions", json=body, timeout=400)


def streamed(spark: Any, model: str, begun: threading.Event) -> bytes:
    seen = b""
    body = asks(model, LONG, stream=True)
    with httpx.stream("POST", f"{spark.url}/v1/chat/completions", json=body, timeout=400) as reply:
        assert reply.status_code == 200
        for piece in reply.iter_raw():
            seen += piece
            if b'"content":' in piece:
                begun.set()
    return seen


def stuck(spark: Any, model: str, way: Callable[[Any], Callable[[], object]]) -> Seen:
    """A stream that has begun and a request that has not, on an engine that is stopped in this way."""
    first = answer(spark, model, 8)
    assert first.status_code == 200, first.text
    stop = way(spark)  # what takes time is found out before the stream begins
    known = {incident["id"] for incident in spark.state()["incidents"]}
    with ThreadPoolExecutor(2) as threads:
        begun = threading.Event()
        stream = threads.submit(streamed, spark, model, begun)
        assert begun.wait(60)
        stop()
        assert not stream.done(), "it was over before the engine was stopped"
        stopped_at = time.time()
        unary = threads.submit(answer, spark, model, 8)

        def over(state: dict[str, Any]) -> list[dict[str, Any]]:
            return [one for one in state["incidents"] if one["id"] not in known and one["ended_at"] is not None]

        state = spark.until(over, timeout=300)
        return Seen(stopped_at, stream.result(), unary.result(), over(state)[0])


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
