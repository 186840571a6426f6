"""Capture: requests of clients and the text of their answers, written to files. Off unless the owner switches it on.

One line of JSON per request, with the keys that are needed to send it again; one per answer.
Rule: only the owner can read the file (0600), and capturing never fails a request.
"""

import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.log import LOG
from sparkdash.paths import open_regular
from sparkdash.units import MIB

FILE = "captured.jsonl"
ANSWERS = "captured-answers.jsonl"
"""File of the answers' texts: who reads the requests need not read them."""
FILE_LIMIT = 64 * MIB
"""Size at which a new file is begun; the old one gets the ending `.1`."""
OLDER = ".1"
BODY_LIMIT = MIB
"""Size beyond which only a body's length is kept."""
OURS = "sparkdash-"
"""User-Agent prefix of sparkdash's own requests (measurements, the demo's, `connect --test`): not captured."""
REDACTED = "[redacted]"
_HEADERS = (
    b"accept", b"anthropic-beta", b"anthropic-version", b"content-type", b"openai-beta", b"user-agent",
    b"x-sparkdash-priority",
)  # fmt: skip
_NAMES = r"[\w-]{0,40}(?:api[_-]?key|password|passwd|secret|authorization|access[_-]?token)"
_IN_QUERY = re.compile(rf"(?i)\b({_NAMES}|key|token)=[^&]*")
_BEGINS = r"(?: \b | (?<=\\[bfnrt]) | (?<=\\u[0-9a-fA-F]{4}) )"
"""Begin of a word in raw JSON, where a line break is a backslash and an n, and the n is no part of the word."""
_BEGINS_A_RUN = _BEGINS.replace(r"\b", r"(?<![\w-])")
"""The same, but not behind a dash: a run of letters and dashes is searched once for a token's end."""
_SECRET = re.compile(
    rf"""(?ix)
      (?P<key> "{_NAMES}" \s*:\s* " ) (?:[^"\\]|\\.)*
    | (?P<quoted> \\"{_NAMES}\\" \s*:\s* \\" ) (?:[^"\\]|\\[^"])*
    | {_BEGINS}(?: sk-[\w-]{{16,}} | hf_\w{{16,}} | gh[pousr]_\w{{16,}} | github_pat_\w{{16,}} | nvapi-[\w-]{{16,}}
        | xai-\w{{16,}} | gsk_\w{{16,}} | AIza[\w-]{{16,}} | AKIA[0-9A-Z]{{16}} )
    | {_BEGINS_A_RUN} eyJ[\w-]{{10,}}+\.[\w-]{{10,}}+\.[\w-]+
    | {_BEGINS}Bearer\s+[\w.~+/-]{{8,}}=*
    """
)
"""Members with telling names; keys of OpenAI, Hugging Face, GitHub, NVIDIA, xAI, Groq, Google and Amazon; JSON web
tokens; authorization headers."""


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """Captured request `id`, from the time `at` (Unix seconds)."""

    id: str
    at: float
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: object = field(repr=False)
    """The JSON document; other text as text; None where only its length was kept."""
    answer: str | None = field(default=None, repr=False)
    """Text of the answer; None where it broke off, was too long, or came before answers were kept."""


class Capture:
    """Writes the capture files in `folder`. Calls may come from any thread."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.answers = folder / ANSWERS
        self._lock = threading.Lock()

    def keep(self, exchange: Exchange, body: bytes, at: float, request_id: str) -> None:
        """Append a client's request. Blocks for as long as the disk does; searching 1 MiB takes 0.2 s (measured)."""
        if exchange.head.agent.startswith(OURS):
            return
        headers = exchange.head.headers
        entry = {
            "id": request_id,
            "at": round(at, 3),
            "method": exchange.method,
            "path": exchange.raw_path,
            "query": _IN_QUERY.sub(rf"\1={REDACTED}", exchange.query),
            "headers": {name.decode(): value for name in _HEADERS if (value := headers.get(name)) is not None},
            "body_bytes": len(body),
            "body": _told(body),
        }
        self._write(self.path, entry)

    def keep_answer(self, exchange: Exchange, dialect: Dialect, at: float) -> None:
        """Append the text of an answer that came to its end. Blocks as `keep` does."""
        kept = exchange.kept
        text = None if kept is None or exchange.head.agent.startswith(OURS) else kept.text(dialect)
        if kept is not None and text is not None:
            entry = {"id": kept.request_id, "at": round(at, 3), "text": without_secrets(text)}
            self._write(self.answers, entry)

    def _write(self, path: Path, entry: dict[str, object]) -> None:
        try:
            line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            with self._lock:
                _append(path, line)
        except (OSError, RecursionError) as error:
            LOG.warning("a request could not be captured", file=str(path), why=str(error))


def find_captured(folder: Path, request_id: str) -> CapturedRequest | None:
    """Find a request in the capture files by its id; None where it is not kept. Reads up to 256 MiB."""
    entry = _find_line(folder / FILE, request_id)
    if entry is None:
        return None
    answer = _find_line(folder / ANSWERS, request_id) or {}
    return CapturedRequest(
        request_id, entry["at"], entry["method"], entry["path"], entry["query"], entry["headers"], entry["body"],
        answer.get("text"),
    )  # fmt: skip


def _find_line(path: Path, request_id: str) -> dict[str, Any] | None:
    begin = f'{{"id": {json.dumps(request_id)},'.encode()
    for file in (path, path.with_name(path.name + OLDER)):
        try:
            with open_regular(file) as lines:
                if found := next((line for line in lines if line.startswith(begin)), None):
                    return dict(json.loads(found))
        except FileNotFoundError:
            continue
    return None


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size + len(line) > FILE_LIMIT:
        path.replace(path.with_name(path.name + OLDER))
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(line)


def without_secrets(text: str) -> str:
    """Replace text that looks like a secret."""
    return _SECRET.sub(lambda hit: (hit["key"] or hit["quoted"] or "") + REDACTED, text)


def _told(body: bytes) -> object:
    """Return JSON parsed and other text as text; None for binary data and for long bodies."""
    if len(body) > BODY_LIMIT:
        return None
    try:
        text = without_secrets(body.decode())
    except UnicodeDecodeError:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
