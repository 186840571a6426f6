"""Errors made of an engine's answer.

Pure.
"""

from __future__ import annotations

from copy import copy

from sparkdash.errors import AdmissionError, BadAnswerError, SparkdashError, UpstreamError
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.counts import error_code
from sparkdash.gateway.protocol.overflow import overflow_error
from sparkdash.upstream import engine_error_text


def log_hint(profile: str) -> str:
    """Say where the engine's log is."""
    return f"Its log says more: `sparkdash logs {profile}`."


def bad_answer_error(profile: str, fault: str) -> BadAnswerError:
    """Build the error of an answer with status 200 that is none."""
    return BadAnswerError(f"{profile} answered 200 with {fault}.", hint=log_hint(profile))


def reworded_error(status: int, body: bytes) -> SparkdashError:
    """Reword an engine's refusal for a client that already has status 200."""
    if error := overflow_error(body):
        return error
    family = AdmissionError if 400 <= status < 500 else SparkdashError
    return family(engine_error_text(body), code=error_code(body) or "engine_refused", status=max(status, 400))


def lost_error(error: SparkdashError) -> SparkdashError:
    """Turn the reason of a lost lease into an error of one request: its engine died, or the lease was cut."""
    if error.code == problems.CUT:
        return copy(error)  # one error cuts many requests, and each needs its own traceback
    return UpstreamError(error.message, code=error.code, hint=error.hint)
