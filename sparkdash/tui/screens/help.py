"""Text of the help: every key, and the meaning of the figures.

Owns: these texts. Rule: the definitions of figures come from `domain.metric`.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.metric import METRICS, Metric
from sparkdash.tui.history import STEP_S
from sparkdash.tui.ink import EMPTY, Ink, Line, inked, wrap

KEYS: tuple[tuple[str, str], ...] = (
    ("1 2 3 4 5 6 7", "dashboard, profiles, requests, A/B, logs, history, box"),
    ("j k g G, arrows", "move; page up and down; the mouse works everywhere"),
    ("⏎ or s", "on a profile: switch to it; elsewhere s opens the profiles"),
    ("a b, space", "on a profile: mark it as A, as B, or as whichever is free"),
    ("t", "flip between A and B; asks first, t again agrees"),
    ("x", "cancel the swap under way"),
    ("c", "on a request: end it"),
    (
        "p a c d i",
        "on the dashboard while nothing runs: profiles that fit; attach a server that runs; copy a client's recipe; "
        "the simulated box; `sparkdash setup`",
    ),
    ("S", "stop the running engine; on the profiles page, the one under the cursor"),
    (
        "p  w  r",
        "on the profiles page: pull the image; explain the memory need, or why it cannot run; read the files again",
    ),
    ("u", "on the profiles page: release a parked profile, so that it may start again"),
    ("/  esc", "search the page; show all rows again, from the top"),
    (
        "space n N",
        "on a log: hold or follow; next and previous match; tab: next engine; h l, arrows: scroll long lines",
    ),
    ("tab n m h", "on A/B: move from runs to cells; next arm; copy as Markdown; write the HTML page"),
    ("e  r", "on A/B: end the measurement; resume the run under the cursor"),
    ("n", "on the history page: every notice, and every problem of a profile file"),
    ("y", "copy the row (through the terminal, also over ssh)"),
    (": ctrl+p", "every command by its name"),
    ("ctrl+s", "save the screen as an SVG"),
    ("T", "the demo's traffic on or off"),
    ("D", "doctor: what keeps engines from running on this box; on a profile: the command that starts it"),
    ("A", "plan an A/B run of the two marked profiles, with its time, then begin it"),
    ("P L", "on a profile: pin it (it stays), preload it (with the daemon)"),
    ("E", "on a profile: edit its file; the old one stays until the new one is valid"),
    (",", "settings: every key of config.toml, with its meaning; enter changes one"),
    ("M", "who holds the box's memory, and the command that frees it"),
    ("q", "quit; the daemon keeps serving (`sparkdash stop --daemon --all` ends everything)"),
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
    ("ttft", "of a request: from sending it to the engine until its first text; without the wait for a swap"),
    ("cached, think", "prompt tokens found in the prefix cache; reasoning tokens among the written ones"),
    ("needs", "memory of a profile: learned here, else declared or estimated (w says which)"),
    ("reserve", "memory that is kept free: no load may use it"),
    ("pressure", "share of the last 10 s in which every task waited for memory"),
    ("best, median", "of the requests that sparkdash served; publ. is the figure of the profile's source"),
    ("-", "unknown. Dimmed figures are old; their age stands beside the name"),
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
