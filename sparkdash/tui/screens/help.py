"""Text of the help: every key, and the meaning of the figures.

Rule: the definitions of figures come from `domain.metric`. Pure.
"""

from __future__ import annotations

from sparkdash.domain.metric import METRICS, Metric
from sparkdash.tui.history import STEP_S
from sparkdash.tui.text import EMPTY, Line, Style, styled, wrap

Keys = tuple[tuple[str, str], ...]

EVERYWHERE: Keys = (
    ("1 2 3 4 5 6 7", "dashboard, profiles, requests, A/B, logs, history, box"),
    ("j k g G, arrows", "move; page up and down; the mouse works everywhere, on hints and headings too"),
    ("s", "switch to another profile: opens the profiles"),
    ("⏎  e", "describe or open the row under the cursor; edit it"),
    ("x", "end what is under the cursor: request, engine, load or measurement; asks first, x again agrees"),
    ("n", "what went wrong lately, with what to do"),
    ("K", "let a stalled load go on"),
    ("f", "make the next engine the large one; a click on its row does the same"),
    ("t  A", "flip between A and B (asks first); plan an A/B run of both, with its time"),
    ("/  esc", "show only rows with a text; all rows again, from the top"),
    ("y", "copy the row (through the terminal, also over ssh)"),
    ("D  ,", "doctor: what keeps engines from running; settings: every key of config.toml"),
    (": ctrl+p", "every command by its name"),
    ("T", "next theme (dark, light, contrast, safe, safe-light, plain); it is kept"),
    ("ctrl+s", "save the screen as an SVG"),
    ("q", "quit; the daemon keeps serving (`sparkdash stop --daemon --all` ends everything)"),
)
BY_PAGE: dict[str, Keys] = {
    "dashboard": (
        ("e", "the large figure: each request, or all together"),
        ("[ ]", "window of the large chart: live, 1h, 1d"),
        ("h", "the large chart in the history"),
        ("v", "layout: all panels, the large figure, or engines and requests; it is kept"),
        (
            "p a c d i",
            "while nothing runs: profiles that fit; attach a server that runs; copy a client's recipe; the simulated "
            "box; `sparkdash setup`",
        ),
    ),
    "profiles": (
        ("s", "switch to the profile"),
        ("⏎", "what it needs, what would leave, why it failed or cannot run"),
        ("←  ⏎", "fold its section; open a folded one"),
        ("a b", "mark it as A or as B"),
        ("e", "edit its file; the old one stays until the new one is valid"),
        ("p  r", "pull image and weights; read the profile files again"),
        ("u", "release a parked profile, so that it may start again"),
        ("P L", "pin it (it stays), preload it (with the daemon)"),
        ("d", "the command that starts it"),
    ),
    "requests": (
        ("⏎", "a request as a time line: wait, swap, prefill, decode"),
        ("R", "replay a captured request on another profile, and compare both answers"),
        ("p", "the recorded past, or the running requests again"),
        ("o  r", "in the past: slowest first, and other orders; read again"),
        ("/", "in the past: client:codex profile:gpt-oss status:5xx ttft>2s wait>10s took>1m out>1k, and words"),
    ),
    "compare": (
        ("tab [ ]", "move from runs to cells; next arm"),
        ("m h", "copy as Markdown; write the HTML page"),
        ("r", "resume the run under the cursor"),
    ),
    "logs": (
        ("space", "hold or follow"),
        ("o", "lines as the engine wrote them, or folded"),
        ("[ ] tab", "next engine"),
        ("n N", "next and previous match of a search"),
        ("h l, arrows", "scroll long lines"),
    ),
    "history": (
        ("[ ]  + -", "shorter or longer period; zoom at the cursor; the wheel zooms at the mouse"),
        ("← →  h l  0", "cursor; earlier and later; up to now. A click sets the cursor, a drag pans"),
        ("f  o", "next figure; next profile, or the box"),
        ("p", "over it the period before, then each other profile"),
        ("b  m", "group of the table below: profile, client, key, hour, day; marks of swaps and events"),
        ("v", "swaps and notices instead of charts"),
    ),
    "box": (("r", "read again"),),
}
"""Keys of each page of `header.PAGES`."""
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
    ("lines", "the median of the last requests and the published rate: drawn while at most one request decodes"),
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


def help_lines(page: str, width: int) -> list[Line]:
    """Format the help of a page in at most `width` cells: its own keys, those of every page, then the figures."""
    out = [row for key, word in BY_PAGE.get(page, ()) for row in _entry(key, word, width)]
    out += [EMPTY, styled("On every page", Style.STRONG)] if out else []
    out += [row for key, word in EVERYWHERE for row in _entry(key, word, width)]
    out += [EMPTY, styled("The figures", Style.STRONG)]
    out += [row for word, metric in EXPLAINED.items() for row in _entry(word, METRICS[metric].definition, width)]
    for key, word in TERMS:
        out += _entry(key, word, width)
    return out


def _entry(key: str, word: str, width: int) -> list[Line]:
    first, *rest = wrap(word, width - KEY_CELLS - 1, Style.PLAIN)
    return [styled(f"{key:<{KEY_CELLS}} ", Style.GOOD) + first, *(styled(" " * (KEY_CELLS + 1)) + row for row in rest)]
