"""A stand-in for `vllm serve` over two nodes: the head is the tiny engine, the worker says a line and waits.

A file in GATES holds it up: `load` before the head serves, `warm` before an answer, `stop` before it obeys SIGTERM.
`crash` has the seconds of the load after which the rank crashes.
"""

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

GATES = Path("/gates")
"""Folder of the host, where a profile mounts it."""


def wait_at(gate: str) -> None:
    """Wait while the gate is shut, and say so: a load that says nothing makes no progress."""
    said = 0
    while (GATES / gate).exists():
        print(
            f"INFO 11-23 10:00:00 [loader.py:1] waiting at {gate}, {chr(97 + said % 26) * (said // 26 + 1)}", flush=True
        )
        said += 1
        time.sleep(0.5)  # the pace of its log, not a synchronisation


def crash_if_asked() -> None:
    if (GATES / "crash").exists():
        name = "Worker_TP1" if "--headless" in sys.argv else "EngineCore"
        print(f"({name} pid=1) INFO 11-23 10:00:00 [loader.py:1] Loading weights", flush=True)
        time.sleep(float((GATES / "crash").read_text()))
        sys.exit(f"({name} pid=1) RuntimeError: {name} has no such expert")


def end(*_: object) -> None:
    """Obey SIGTERM once the gate is open."""
    wait_at("stop")
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    crash_if_asked()
    if "--headless" in sys.argv:
        print("(Worker_TP1 pid=1) INFO 11-23 10:00:00 [worker.py:1] ready to compute", flush=True)
        while True:
            signal.pause()
    import tiny_engine

    wait_at("load")
    answer = tiny_engine.Handler.do_POST

    def answer_later(handler: tiny_engine.Handler) -> None:
        wait_at("warm")
        answer(handler)

    tiny_engine.Handler.do_POST = answer_later  # type: ignore[method-assign]
    tiny_engine.main()
