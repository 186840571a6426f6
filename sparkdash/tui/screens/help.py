"""Help: every key, and what the figures mean.

Owns: those words. Rule: the definitions are `domain.metric`'s own.
"""

from __future__ import annotations

from sparkdash.domain.metric import METRICS, Metric
from sparkdash.tui.history import STEP_S
from sparkdash.tui.ink import EMPTY, Ink, Line, say, wrap

KEYS: tuple[tuple[str, str], ...] = (
    ("1 2 3 4 5 6", "dashboard, profiles, requests, A/B, logs, history"),
    ("j k g G, arrows", "walk; page up and down; the mouse works everywhere"),
    ("⏎ or s", "on a profile: switch to it; s elsewhere opens the profiles"),
    ("a b, space", "on a profile: mark it as A, as B, or as the next of the two"),
    ("t", "flip between A and B; asks first, t again says yes"),
    ("x", "give up the swap under way"),
    ("c", "on a request: end it"),
    ("S", "stop the engine that runs"),
    ("p  w  r", "on the profiles: pull its image, why it cannot run, read the files again"),
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
    ("q", "leave; the daemon goes on serving"),
)
EXPLAINED = (
    Metric.DECODE,
    Metric.PREFILL,
    Metric.PREFIX_HIT,
    Metric.KV_USED,
    Metric.ACCEPTANCE,
    Metric.ACCEPTANCE_LENGTH,
)
TERMS: tuple[tuple[str, str], ...] = (
    ("sparklines", f"one bar is {STEP_S:g} s; blank is not measured, the lowest bar is zero"),
    ("best, median", "of the requests that sparkdash served itself; publ. is what the profile's source says"),
    ("-", "not known. Dimmed figures are old: their age stands beside the name"),
)
KEY_CELLS = 16


def lines(width: int) -> list[Line]:
    """All of it, at most `width` cells wide."""
    out = [row for key, word in KEYS for row in _entry(key, word, width)]
    out += [EMPTY, say("The figures", Ink.STRONG)]
    out += [row for metric in EXPLAINED for row in _entry(METRICS[metric].label, METRICS[metric].definition, width)]
    for key, word in TERMS:
        out += _entry(key, word, width)
    return out


def _entry(key: str, word: str, width: int) -> list[Line]:
    first, *rest = wrap(word, width - KEY_CELLS - 1, Ink.PLAIN)
    return [say(f"{key:<{KEY_CELLS}} ", Ink.GOOD) + first, *(say(" " * (KEY_CELLS + 1)) + row for row in rest)]
