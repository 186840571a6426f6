"""How long reading one vLLM scrape takes: our parser against prometheus_client's, on the same text.

Run it with `.venv/bin/python tests/perf/parse.py`; it prints milliseconds and the ratio.
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.registry import adapter
from sparkdash.telemetry.exposition import parse_exposition
from sparkdash.telemetry.reading import sample_names

SAMPLE = Path(__file__).parents[1] / "data" / "metrics" / "real-vllm-0.32.0-draft-after.txt"
SIZE = 70_000
"""Bytes of a whole scrape of vLLM 0.32; the recorded one is trimmed, so its lines are repeated under other names."""
ROUNDS = 30


def page() -> str:
    """The recorded lines once under their own names, and then as what nobody asks for."""
    text = SAMPLE.read_text()
    copies = (text.replace("vllm:", f"other{number}:") for number in range(SIZE // len(text)))
    return "\n".join([text, *copies])


def best_ms(work: Callable[[], object]) -> float:
    """The fastest of many rounds: the machine's own noise only adds."""
    return min(timeit.repeat(work, number=1, repeat=ROUNDS)) * 1000


def main() -> None:
    """Measure and print."""
    text, names = page(), sample_names(adapter(EngineKind.VLLM).metrics)
    ours = best_ms(lambda: parse_exposition(text, names))
    whole = best_ms(lambda: parse_exposition(text))
    theirs = best_ms(lambda: list(text_string_to_metric_families(text)))
    sys.stdout.write(
        f"{len(text) / 1000:.0f} kB: sparkdash {ours:.2f} ms (every name: {whole:.2f} ms),"
        f" prometheus_client {theirs:.2f} ms, ratio {theirs / ours:.0f}\n"
    )


if __name__ == "__main__":
    main()
