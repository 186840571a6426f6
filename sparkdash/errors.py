"""Errors that a person or a client meets: one class for each party that can solve the problem.

Rule: a message says what failed and what was found; the hint says what to do. Neither carries a secret. Pure.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class SparkdashError(Exception):
    """Base of every expected failure.

    Attributes: `code` is a stable snake_case word for programs; `message` says what failed and what was
    found; `hint` what to do about it; `status` the HTTP status; `retry_after` seconds, when waiting helps;
    `exit_code` of the command line.
    """

    status = 500
    exit_code = 1
    default_code = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint
        self.status = status if status is not None else type(self).status
        self.retry_after = retry_after

    def details(self) -> dict[str, Any]:
        return {}

    def text(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ProfileError(SparkdashError):
    """Error in a profile, which its author can fix.

    `problems`: all problems as text, each with file:line; `findings`: the same as data, where known.
    """

    status = 422
    exit_code = 2
    default_code = "profile_invalid"

    def __init__(
        self, message: str, *, problems: tuple[str, ...] = (), findings: tuple[dict[str, Any], ...] = (), **rest: Any
    ) -> None:
        super().__init__(message, **rest)
        self.problems = problems
        self.findings = findings

    def details(self) -> dict[str, Any]:
        facts = {"problems": list(self.problems), "findings": list(self.findings)}
        return {key: found for key, found in facts.items() if found}


class AdmissionError(SparkdashError):
    """Request that cannot be granted: unknown model, does not fit, queue full."""

    status = 400
    exit_code = 3
    default_code = "refused"

    def __init__(self, message: str, *, holders: str | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.holders = holders
        """Other holders of memory, in a sentence, for a caller who may see the whole box: never part of `text`."""


class EngineError(SparkdashError):
    """Engine that did not start, or died; with the phase, the exit code and its last log lines."""

    status = 503
    exit_code = 4
    default_code = "engine_failed"

    def __init__(
        self,
        message: str,
        *,
        phase: str | None = None,
        container_exit: int | None = None,
        log_tail: tuple[str, ...] = (),
        evidence: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(message, **rest)
        self.phase = phase
        self.container_exit = container_exit
        self.log_tail = log_tail
        self.evidence = evidence
        """Folder on the box with what was kept of an engine that hung."""

    def details(self) -> dict[str, Any]:
        """Return where the start ended, the engine's last log lines, and the folder of evidence if there is one."""
        kept = {"evidence": self.evidence} if self.evidence else {}
        return {"phase": self.phase, "exit_code": self.container_exit, "log_tail": list(self.log_tail), **kept}


class HostError(SparkdashError):
    """Missing part of the box: podman, a port, a device, disk, memory."""

    status = 503
    exit_code = 5
    default_code = "host_not_ready"


class UpstreamError(SparkdashError):
    """Engine that did not answer, or answered nonsense."""

    status = 502
    exit_code = 6
    default_code = "engine_unreachable"


class EngineDeadError(UpstreamError):
    """An engine reported that it is dead, before its connection or its process ends."""

    default_code = "engine_died"


class BadAnswerError(UpstreamError):
    """An engine answered success with no usable answer: a web page, nothing, or an error."""

    default_code = "bad_answer"


class DaemonError(SparkdashError):
    """The daemon cannot be reached, is another version, or is already running."""

    status = 503
    exit_code = 7
    default_code = "daemon_unreachable"


@contextmanager
def writing(place: object, code: str, error: type[SparkdashError] = HostError) -> Iterator[None]:
    """Raise `error` with that code where `place` cannot be written."""
    try:
        yield
    except OSError as problem:
        raise error(f"{place} cannot be written: {problem.strerror}.", code=code) from problem


_EXPECTED = {
    "missing": "given",
    "model_type": "a mapping", "dict_type": "a mapping", "list_type": "a list", "tuple_type": "a list",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "finite_number": "a number",
    "literal_error": "one of {expected}", "enum": "one of {expected}", "path_type": "a path",
    "too_short": "a list of at least {min_length}", "too_long": "a list of at most {max_length}",
    "string_type": "text", "string_too_short": "some text", "string_pattern_mismatch": "of the form {pattern}",
    "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}",
}  # fmt: skip
"""Words after "must be", by pydantic's name of the error."""


def expected(error: "ErrorDetails") -> str:
    """Word one of pydantic's errors as a rule for its value: "must be a whole number"."""
    if (words := _EXPECTED.get(error["type"])) is None:
        text = error["msg"].removeprefix("Value error, ")
        return text[:1].lower() + text[1:]
    return f"must be {words.format_map(error.get('ctx') or {})}"
