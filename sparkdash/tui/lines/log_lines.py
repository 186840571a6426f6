"""Lines of engines' logs as time, level and text, and the engines' figures as columns. Pure."""

import re

from sparkdash.tui.text import EMPTY, Line, Style, styled

_PREFIX = re.compile(
    r"(?:\([\w ]+ pid=\d+\) )?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+)?"
    r"(?:\[?(?:\d{4}-)?\d\d-\d\d[ T](?P<time>\d\d:\d\d:\d\d)[\d.,]*(?: \w+)?\]?\s*)?"
    r"(?:\[[\w.]+:\d+\]\s*)?"
    r"(?P<text>.*)"
)
"""Beginnings of the lines of vLLM, SGLang and uvicorn: process, level, date and time, place in the source."""
_FIGURES = (
    ("prompt", r"prompt throughput: ([\d.]+)", 0, "", 5),
    ("decode", r"(?:generation throughput: |gen throughput \(token/s\): )([\d.]+)", 1, " tok/s", 12),
    ("run", r"(?:Running: |#running-req: )(\d+)", 0, "", 2),
    ("wait", r"(?:Waiting: |#queue-req: )(\d+)", 0, "", 2),
    ("kv", r"KV cache usage: ([\d.]+)%", 0, " %", 4),
    ("prefix", r"Prefix cache hit rate: ([\d.]+)%", 0, " %", 5),
)
"""Name, pattern, decimals, unit and cells of each figure of the lines that vLLM and SGLang write every few seconds."""
_HAS_FIGURES = re.compile(r"generation throughput: |gen throughput \(token/s\): ")
LEVELS = {"WARNING": Style.WARN, "ERROR": Style.BAD, "CRITICAL": Style.BAD}
TIME = 8


def log_line(text: str, left: int = 0) -> Line:
    """Format a line without its engine's prefix, from character `left` of its text on."""
    found = _PREFIX.match(text)
    if found is None:
        return styled(text[left:])
    level, at, rest = found["level"], found["time"], found["text"]
    style = level_style(text)
    head = styled(f"{at or '':{TIME}}  ", Style.DIM)
    if level in LEVELS:
        head += styled(f"{level} ", style)
    if not left and _HAS_FIGURES.search(rest):
        return head + _figures(rest)
    return head + styled(rest[left:], style)


def _figures(text: str) -> Line:
    """Format the figures below those of other lines; one that the engine leaves out stays blank."""
    line, cells = EMPTY, 0
    for name, pattern, decimals, unit, room in _FIGURES:
        if found := re.search(pattern, text):
            told = f"{float(found[1]):.{decimals}f}{unit}"
            line += styled(f"{' ' * cells}{name} ", Style.DIM) + styled(f"{told:>{room}}")
            cells = 0
        else:
            cells += len(name) + 1 + room
        cells += 1
    return line


def level_style(line: str) -> Style:
    """Return the colour of a line, by the level within its beginning."""
    head = line[:60]
    if "ERROR" in head or "Error" in head or "CRITICAL" in head:
        return Style.BAD
    return Style.WARN if "WARN" in head else Style.PLAIN
