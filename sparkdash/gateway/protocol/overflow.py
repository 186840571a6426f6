"""Overflow: an engine's error about a too long prompt, in the words on which agents compact their context.

Owns: how each engine says so. Codex, Claude Code, Cline, Continue, LangChain and pi act on OpenAI's code and sentence;
an engine's own words are only shown to a person.

Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sparkdash.errors import AdmissionError

CODE = "context_length_exceeded"
_OPENAI = re.compile(r"maximum context length is \d+ tokens")
"""vLLM has the sentence, but not the code."""
_TOLD = (
    # llama.cpp
    re.compile(r"request \((?P<asked>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)"),
    # SGLang: the prompt alone, and with max_tokens
    re.compile(r"input \((?P<asked>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+) tokens\)"),
    re.compile(r"maximum context length of (?P<limit>\d+) tokens\. You requested a total of (?P<asked>\d+) tokens"),
    # TensorRT-LLM's three messages
    re.compile(
        r"sum of prompt length \((?P<asked>\d+)(?:\.0)?\),? (?:and )?query length \((?P<more>\d+)\)"
        r"(?: max_tokens \((?P<output>\d+)\))? should not exceed max_(?:seq_len|num_tokens) \((?P<limit>\d+)\)"
    ),
    re.compile(
        r"max_seq_len \((?P<limit>\d+)\) - `?splited_prompt_len`? \((?P<asked>\d+)\)"
        r" - `?query_token_len`? \((?P<more>\d+)\)"
    ),
)


def overflow_error(body: bytes) -> AdmissionError | None:
    """Translate an engine's 400 about a too long prompt into OpenAI's words; None for any other error."""
    message = _engine_message(body)
    if message is None:
        return None
    if _OPENAI.search(message):
        return _error(message)
    found = next((found for pattern in _TOLD if (found := pattern.search(message))), None)
    if found is None:
        return None
    groups = found.groupdict()
    requested = sum(int(groups.get(part) or 0) for part in ("asked", "more", "output"))
    return _error(
        f"This model's maximum context length is {groups['limit']} tokens. However, you requested {requested} tokens. "
        "Please reduce the length of the messages."
    )


def _engine_message(body: bytes) -> str | None:
    """Find the message in an engine's error: in `error`, as `error`, or beside it."""
    try:
        parsed: Any = json.loads(body)
    except ValueError:
        return None
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None


def _error(message: str) -> AdmissionError:
    return AdmissionError(message, code=CODE, status=400)
