"""Text of the help: the keys, and the meaning of the figures.

Rule: the keys come from the bindings, the definitions of figures come from `domain.metric`. Pure.
"""

from sparkdash.domain.metric import METRICS, Metric
from sparkdash.tui.history import STEP_S
from sparkdash.tui.text import EMPTY, Line, Style, styled, wrap

Keys = tuple[tuple[str, str], ...]

MOVES: Keys = (
    ("1 to 7", "dashboard, profiles, requests, A/B, logs, history, box"),
    ("j k g G, arrows", "move; page up and down; the mouse works everywhere, on hints and headings too"),
)
EXPLAINED = {
    "decode": Metric.DECODE,
    "each": Metric.DECODE_EACH,
    "prompt": Metric.PROMPT_SPEED,
    "ttft, p95": Metric.TTFT_P50,
    "prefix": Metric.PREFIX_HIT,
    "kv": Metric.KV_USED,
    "accept": Metric.ACCEPTANCE,
    "per step": Metric.ACCEPTANCE_LENGTH,
}
"""Figures of the card, by their labels."""
TERMS: tuple[tuple[str, str], ...] = (
    ("charts", f"one column of dots, or one bar, is {STEP_S:g} s; blank is not measured, the lowest dot is zero"),
    ("lines", "the median of requests that ran alone and the published rate: drawn while at most one request decodes"),
    ("plain", "measured speed over the same model without speculation, in the newest A/B run that may claim it"),
    ("room for", "requests of full context that the KV cache still holds"),
    ("~", "an estimate: counted by the gateway, as the engine does not tell it"),
    ("tok/s", "of a request: (tokens written - 1) / (last - first piece of text), as the engine counts them"),
    ("ttft", "of a request: from sending it to the engine until its first text; without the wait for a swap"),
    ("cached, think", "prompt tokens found in the prefix cache; reasoning tokens among the written ones"),
    ("needs", "memory of a profile: learned here, else declared or estimated (⏎ says which)"),
    ("reserve", "memory that is kept free: no load may use it"),
    ("pressure", "share of the last 10 s in which every task waited for memory"),
    ("best, median", "rates of single requests, that sparkdash served; publ. is the figure of the profile's source"),
    ("-", "unknown. Dimmed figures are old; their age stands beside the name"),
)
KEY_CELLS = 16


def help_lines(page: Keys, everywhere: Keys, width: int) -> list[Line]:
    """Format the help in at most `width` cells: the page's own keys, those of every page, then the figures."""
    out = [row for key, word in page for row in _entry(key, word, width)]
    out += [EMPTY, styled("On every page", Style.STRONG)] if out else []
    out += [row for key, word in (*MOVES, *everywhere) for row in _entry(key, word, width)]
    out += [EMPTY, styled("The figures", Style.STRONG)]
    out += [row for word, metric in EXPLAINED.items() for row in _entry(word, METRICS[metric].definition, width)]
    return out + [row for key, word in TERMS for row in _entry(key, word, width)]


def _entry(key: str, word: str, width: int) -> list[Line]:
    first, *rest = wrap(word, width - KEY_CELLS - 1, Style.PLAIN)
    return [styled(f"{key:<{KEY_CELLS}} ", Style.GOOD) + first, *(styled(" " * (KEY_CELLS + 1)) + row for row in rest)]
