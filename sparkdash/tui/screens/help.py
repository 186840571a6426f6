"""Text of the help: every key, and the meaning of the figures.

Owns: these texts. Rule: the definitions of figures come from `domain.metric`.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.metric import METRICS, Metric
from sparkdash.tui.history import STEP_S
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, wrap

KEYS: tuple[tuple[str, str], ...] = (
    ("1 2 3 4 5 6", "dashboard, profiles, requests, A/B, logs, history"),
    ("j k g G, arrows", "walk; page up and down; the mouse works everywhere"),
    ("⏎ or s", "on a profile: switch to it; s elsewhere opens the profiles"),
    ("a b, space", "on a profile: mark it as A, as B, or as the next of the two"),
    ("t", "flip between A and B; asks first, t again says yes"),
    ("x", "give up the swap under way"),
    ("c", "on a request: end it"),
    ("S", "stop the engine that runs; on the profiles the one under the cursor"),
    ("p  w  r", "on the profiles: pull its image; what it needs, or why it cannot run; read the files again"),
    ("u", "on the profiles: release a parked one, so that it may be tried again"),
    ("/  esc", "find in the page; show all again, and what comes at the top of the list"),
    (
        "space n N",
        "on a log: hold or follow; next and earlier place found; tab: next engine; h l, arrows: the rest of long lines",
    ),
    ("tab n m h", "on A/B: from the runs to the cells; next arm; copy as Markdown, write the HTML page"),
    ("e  r", "on A/B: end what is measured; go on with the run under the cursor"),
    ("n", "on the history: every notice, and every problem of a profile file"),
    ("y", "copy the row (through the terminal, also over ssh)"),
    (": ctrl+p", "every command by its name"),
    ("ctrl+s", "save the screen as an SVG"),
    ("T", "the demo's traffic on or off"),
    ("D", "the doctor: what of this box would keep engines from running"),
    ("M", "who holds the box's memory, and the command that frees it"),
    ("q", "leave; the daemon goes on serving (`sparkdash stop --daemon --all` ends all)"),
)
EXPLAINED = {
    "decode": Metric.DECODE,
    "prefill": Metric.PREFILL,
    "ttft, p95": Metric.TTFT_P50,
    "prefix": Metric.PREFIX_HIT,
    "kv": Metric.KV_USED,
    "accept": Metric.ACCEPTANCE,
    "length": Metric.ACCEPTANCE_LENGTH,
}
"""Figures of the card, by their labels."""
TERMS: tuple[tuple[str, str], ...] = (
    ("sparklines", f"one bar is {STEP_S:g} s; blank is not measured, the lowest bar is zero"),
    ("tok/s", "of a request: (tokens written - 1) / (last - first piece of text), as the engine counts them"),
    ("ttft", "of a request: from when it goes to the engine to its first text; the wait for a swap is not in it"),
    ("cached, think", "tokens of the prompt that the prefix cache had; written tokens that are reasoning"),
    ("needs", "memory that a profile takes: learned here, else declared or estimated (w says which)"),
    ("reserve", "memory that is kept free: no load may take of it"),
    ("pressure", "share of the last 10 s in which every task waited for memory"),
    ("best, median", "of the requests that sparkdash served itself; publ. is what the profile's source says"),
    ("-", "not known. Dimmed figures are old: their age stands beside the name"),
)
KEY_CELLS = 16


def help_lines(width: int) -> list[Line]:
    """Format the help in at most `width` cells."""
    out = [row for key, word in KEYS for row in _entry(key, word, width)]
    out += [EMPTY, inked("The figures", Ink.STRONG)]
    out += [row for word, metric in EXPLAINED.items() for row in _entry(word, METRICS[metric].definition, width)]
    for key, word in TERMS:
        out += _entry(key, word, width)
    return out


def _entry(key: str, word: str, width: int) -> list[Line]:
    first, *rest = wrap(word, width - KEY_CELLS - 1, Ink.PLAIN)
    return [inked(f"{key:<{KEY_CELLS}} ", Ink.GOOD) + first, *(inked(" " * (KEY_CELLS + 1)) + row for row in rest)]
