"""Problems: a SparkdashError in the format of each kind of client.

Rule: clients show only `message`, so the hint is in it too. Programs find the hint apart, with our own code, and `src`
tells sparkdash's errors from an engine's. Pure.
"""

import json
import math
import re
from http import HTTPStatus
from typing import Any

from sparkdash.domain.profile import EngineKind
from sparkdash.engines import registry
from sparkdash.errors import AdmissionError, EngineError, HostError, ProfileError, SparkdashError
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.upstream import engine_error_text, readable

SHOWN = 200
_ERROR = re.compile(rb'\s*\{\s*"(?:error": ?(?:\{|"[^"])|(?:object|type)": ?"error")')
"""Beginning of a body that is an error as a whole: OpenAI's, older engines' and Anthropic's format."""
_BLAMES_REQUEST = re.compile(rb'"(?:code|status)": ?"?4\d\d\b')
"""Pattern of an error that blames the request, not the engine."""


def calls_itself_dead(engine: EngineKind, words: bytes) -> bool:
    """Whether this error says that the engine behind its HTTP server is dead."""
    return any(phrase in words for phrase in registry.adapter(engine).death_words)


def is_error(begins: bytes) -> bool:
    return _ERROR.match(begins) is not None


def answer_fault(begins: bytes) -> str | None:
    """Find the fault of a whole answer with status 200 and this beginning; None without one.

    The engine was asked to generate. An error that blames the request counts as an answer: it concerns the client.
    """
    body = begins.lstrip()
    if not body:
        return None if begins else "nothing"  # blanks may be keep-alives
    if not body.startswith(b"{"):
        return f"no JSON object: {readable(begins)[:SHOWN]}"
    if is_error(body) and not _BLAMES_REQUEST.search(body):
        return f"an error: {engine_error_text(body)}"
    return None


_INSTRUCTIONS = re.compile(rb"(?i)system (?:message|role|prompt)s?\b|\broles?\b")
"""Words of chat templates that refuse a role, or its place in the conversation (`raise_exception`)."""


def refuses_instructions(words: bytes) -> bool:
    """Whether an engine's error may be its model's template refusing the places or roles of system messages."""
    return _INSTRUCTIONS.search(words) is not None


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
    message = engine_error_text(body)
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


def _error(message: str) -> AdmissionError:
    return AdmissionError(message, code=CODE, status=400)


CUT = "cut"
"""Code of a request that was ended on purpose: for a swap after the drain, or by a person's stop."""
REMOTE_REFUSED = "remote_refused"
"""Code of an error that is a remote service's own refusal, with its own status."""
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses of a remote service that may answer the next time."""
_STAYS = frozenset({HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.LOOP_DETECTED})
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def is_permanent(error: SparkdashError) -> bool:
    """Whether the client should not repeat the request: it would fail again, or cost another load.

    A failed load is permanent, even though a later request may try it again: an agent that repeats its prompt would
    make it fail twice.
    """
    if error.retry_after is not None:
        return False
    if error.code == REMOTE_REFUSED:
        return error.status < HTTPStatus.INTERNAL_SERVER_ERROR and error.status not in _PASSING
    return isinstance(error, AdmissionError | EngineError | HostError | ProfileError)


def _blames_request(error: SparkdashError) -> bool:
    """Whether agents are to read a permanent error as a mistake of theirs: only that keeps them from repeating it.

    A cut stays a 5xx: the request was fine, and its engine was stopped under it.
    """
    return error.code != CUT and is_permanent(error)


def client_status(error: SparkdashError) -> int:
    """Choose the status for clients of models: 400 in place of a 5xx that they would repeat in vain.

    Claude Code, opencode and qwen-code repeat a 5xx after the time of Retry-After, whatever x-should-retry says. No
    client that was tried repeats a 400. A 501 stays: clients recognise a missing route by it. So does a 508, which
    other gateways pass on.
    """
    tempting = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and error.status not in _STAYS
    return HTTPStatus.BAD_REQUEST.value if tempting and _blames_request(error) else error.status


def error_body(error: SparkdashError, dialect: Dialect = Dialect.OTHER) -> dict[str, Any]:
    status = client_status(error)
    if dialect is Dialect.MESSAGES:
        failed = "api_error" if error.retry_after is None else "overloaded_error"
        kind = _ANTHROPIC.get(status, "invalid_request_error") if status < 500 else failed
        return {"type": "error", "error": {"type": kind, **_facts(error)}}
    kind = "invalid_request_error" if status < 500 else "server_error"
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    return {"error": {"type": kind, "param": "model" if "model" in error.code else None, **_facts(error)}}


def stream_error_body(error: SparkdashError, dialect: Dialect) -> dict[str, Any]:
    """Build the error inside a stream that began with 200, where only `type` and `code` can say "do not try again"."""
    body = error_body(error, dialect)
    if _blames_request(error) and error.code != CODE:  # agents know this error by its own code
        body["error"] |= {"type": "invalid_request_error"}
        if dialect is not Dialect.MESSAGES:
            body["error"] |= {"code": "invalid_request_error", "reason": error.code}
    return body


def error_headers(error: SparkdashError) -> list[tuple[bytes, bytes]]:
    """Headers of the refusal: Retry-After when waiting helps; x-should-retry: false where SDKs would repeat in vain."""
    found = [(b"content-type", b"application/json")]
    if error.retry_after is not None:
        found.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    if error.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        found.append((b"accept-encoding", b"identity"))  # RFC 9110, section 12.5.3: accepted codings of requests
    if error.status == HTTPStatus.REQUEST_TIMEOUT:
        found.append((b"connection", b"close"))  # the rest of the request is not read
    if error.status == HTTPStatus.UNAUTHORIZED:
        found.append((b"www-authenticate", b"Bearer"))  # RFC 9110, section 15.5.2
    if error.status >= 500 and is_permanent(error):
        found.append((b"x-should-retry", b"false"))
    return found


def encode_json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def status_error(status: int, detail: str | None = None) -> SparkdashError:
    phrase = HTTPStatus(status).phrase
    return AdmissionError(f"{detail or phrase}.", code=phrase.lower().replace(" ", "_"), status=status)


def _facts(error: SparkdashError) -> dict[str, Any]:
    facts = {"message": error_message(error), "code": error.code, "hint": error.hint, "src": "sparkdash"}
    again = {} if error.retry_after is None else {"retry_after": error.retry_after}
    return {**facts, **error.details(), **again}


def error_message(error: SparkdashError) -> str:
    """Compose the text that a client shows: message, hint, and who else holds memory if the caller may know."""
    holders = error.holders if isinstance(error, AdmissionError) else None
    return f"{error.text()} {holders}" if holders else error.text()


def response_code(error: SparkdashError) -> str:
    """Choose the code of a failed response; the SDKs' types know a few words, and Codex acts on two of them."""
    if error.code == CODE:
        return error.code
    return "invalid_prompt" if _blames_request(error) else "server_error"
