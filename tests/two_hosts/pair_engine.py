"""A stand-in for `vllm serve` over two nodes: the head is the tiny engine, the worker says a line and waits."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "--headless" in sys.argv:
        print("(Worker_TP1 pid=1) INFO 11-23 10:00:00 [worker.py:1] ready to compute", flush=True)
        while True:
            signal.pause()
    import tiny_engine

    tiny_engine.main()
