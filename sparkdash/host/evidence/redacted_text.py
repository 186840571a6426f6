"""Evidence as text, without secrets and prompts.

Owns: the form of processes, and which log lines may contain a prompt. Must not know how anything is read.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sparkdash.host.evidence.processes import ProcessSeen
from sparkdash.printable import one_line
from sparkdash.redaction import MASK, is_secret_flag, is_secret_variable, masked
from sparkdash.units import DASH, size

LOG_LINES = 200
LINE_LIMIT = 2000
"""Limit of a log line in characters."""
READ_LIMIT = 8192
"""Characters of a line or an argument that are searched."""
ARGUMENT_LIMIT = 500
"""Limit of one argument in characters."""
ARGUMENTS = 400
PROMPT_CUT = "[cut: it may hold a prompt]"

_PROMPT = re.compile(
    r"prompt_?token_?ids|(?:token|input)_ids['\"]?\s*[=:]|SchedulerOutput\(|RequestData\(|ReqInput\("
    r"|\bprompts?['\"]?\s*[:=]|\b(?:text|messages|content|input|output|delta|arguments)\s*=\s*['\"\[{]"
    r"|['\"](?:messages|content|text|input|output|prompt|delta|arguments|system)['\"]\s*:"
    r"|\b(?:request|response|output|input|message)s?:\s*['\"{\[]|parsed message|sampled token|next token:"
    r"|\btoken: \d+ =|generated text|Dumping (?:input|scheduler)",
    re.IGNORECASE,
)
"""Text before a prompt or an answer in the logs of vLLM (request logging, the dump after a failed step), SGLang
(request logging) and llama-server (verbose).
"""
_NEW_LINE = re.compile(
    r"(?:\([^)]{1,80}\)\s*)?(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)(?:\s+\d\d-\d\d|:)|\[\d{4}-\d\d-\d\d"
    r"|\d+\.\d\d\.\d{3}\.\d{3} [A-Z] |(?:srv|slot|que)\s+\S+: |(?:main|(?:llama|ggml|common|load)_\w+): "
)
"""Beginning of a logger's line; any other line continues the one before."""
_PROMPT_FLAG = re.compile(r"--?(?:system[-_])?prompt")
_SECRET_ENDS = ("token", "password", "key")


def log_lines(lines: Sequence[str]) -> list[str]:
    """Take the last lines of a log, without secrets; possible prompts are cut, with their continuation lines."""
    found: list[str] = []
    cutting = False
    for whole in lines:
        line = whole[:READ_LIMIT]
        if cutting and not _NEW_LINE.match(line):
            continue
        begins = _PROMPT.search(line)
        cutting = begins is not None
        kept = line if begins is None else f"{line[: begins.start()]}{PROMPT_CUT}"
        found.append(one_line(_masked(kept, LINE_LIMIT)))
    return found[-LOG_LINES:]


def argv_text(words: Sequence[str]) -> str:
    """Format a command line without secrets and prompts, cut to a readable length."""
    found: list[str] = []
    hidden: str | None = None
    for word in words[:ARGUMENTS]:
        name, equals, value = word.partition("=")
        if hidden is not None and not word.startswith("-"):  # vLLM takes several keys behind one flag
            found.append(hidden)
            continue
        hidden = None
        if instead := _hides(name):
            if equals:
                found.append(f"{name}={instead}")
                continue
            hidden = instead
        elif equals and is_secret_variable(name) and value:
            found.append(f"{name}={MASK}")
            continue
        found.append(_masked(word[:READ_LIMIT], ARGUMENT_LIMIT))
    more = [f"… and {len(words) - ARGUMENTS} more"] if len(words) > ARGUMENTS else []
    return one_line(" ".join([*found, *more])).rstrip()


def _masked(text: str, limit: int) -> str:
    """Mask before cutting, as the beginning of a token is not recognised as one."""
    clean = masked(text)
    return clean if len(clean) <= limit else f"{clean[:limit]}…"


def _hides(flag: str) -> str | None:
    """Replacement for this flag's value; None to show the value."""
    if not flag.startswith("-"):
        return None
    if _PROMPT_FLAG.fullmatch(flag):
        return PROMPT_CUT
    return MASK if is_secret_flag(flag) or flag.lower().endswith(_SECRET_ENDS) else None


def processes_text(found: Iterable[ProcessSeen], span_s: float) -> str:
    """Format every process with its threads, grouped by state and kernel function."""
    return "\n".join(_process_text(one, span_s) for one in found)


def _process_text(seen: ProcessSeen, span_s: float) -> str:
    marks = [mark for mark, holds in (("stopped", seen.state in "Tt"), ("frozen", seen.is_frozen)) if holds]
    state = " ".join([seen.state, *(f"({mark})" for mark in marks)])
    share = DASH if seen.cpu_share is None else f"{seen.cpu_share:.0%} of a core over {span_s:g} s"
    memory = ", ".join(f"{name} {size(count)}" for name, count in seen.memory.items()) or DASH
    lines = [
        f"pid {seen.pid}  {one_line(seen.name)}  state {state}  parent {seen.parent}"
        f"  program {one_line(seen.program or DASH)}",
        f"  cpu      {seen.cpu_s:.1f} s in all, {share}",
        f"  memory   {memory}",
        f"  threads  {seen.threads}",
        *_thread_lines(seen),
        f"  argv     {_argv(seen)}",
    ]
    return "\n".join(lines) + "\n"


def _thread_lines(seen: ProcessSeen) -> Iterator[str]:
    for (state, function), count in sorted(seen.groups.items(), key=lambda item: -item[1]):
        yield f"    {count} {'thread' if count == 1 else 'threads'}: {state} {function}"
    for thread, share in seen.busiest:
        yield f"    busy: {one_line(thread.name)} (tid {thread.tid}) {share:.0%}"


def _argv(seen: ProcessSeen) -> str:
    if seen.argv is not None:
        return argv_text(seen.argv)
    return "not read: a thread hangs in the kernel, and a reader would too" if seen.hangs else "not readable"


def slots_text(body: bytes) -> str:
    """Keep numbers and booleans of llama-server's /slots, without prompts. Raises ValueError for no JSON."""
    return json.dumps(_figures(json.loads(body)), indent=1) + "\n"


def _figures(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _figures(item) for key, item in value.items() if _may_hold_figures(item)}
    if isinstance(value, list):
        return [_figures(item) for item in value if isinstance(item, dict)]
    return value if isinstance(value, bool | int | float) else None


def _may_hold_figures(item: Any) -> bool:
    if isinstance(item, list):
        return all(isinstance(each, dict) for each in item)
    return isinstance(item, bool | int | float | dict)
