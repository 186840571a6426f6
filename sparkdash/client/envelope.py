"""Errors out of the daemon's answers: every envelope becomes the SparkdashError that it was.

Owns: the class of each envelope, and the messages for a daemon that does not answer. Must not know: what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from sparkdash import __version__
from sparkdash.api.rows import StreamError
from sparkdash.api.tolerance import OtherVersion
from sparkdash.client.address import Address
from sparkdash.errors import (
    AdmissionError,
    DaemonError,
    EngineError,
    HostError,
    ProfileError,
    SparkdashError,
    UpstreamError,
)

LINK_LOST = frozenset({"daemon_unreachable", "daemon_silent", "daemon_hung_up"})
"""Codes of a daemon that may come back; any other DaemonError stays after another attempt."""

FAILED_STREAM = 503
"""Status of an error that comes in a stream, after the status of the answer."""
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word for an authority that is not trusted, in every HTTP library's error."""
_BY_STATUS: dict[int, type[SparkdashError]] = {
    422: ProfileError,
    500: SparkdashError,
    502: UpstreamError,
    504: UpstreamError,
}


def error_from_answer(status: int, body: bytes, address: Address) -> SparkdashError:
    """Return the error of an answer with `status` >= 400; DaemonError `daemon_version` for an unknown envelope."""
    try:
        envelope = json.loads(body)["error"]
        message = envelope["message"]
    except (ValueError, KeyError, TypeError):
        return DaemonError(
            f"The server at {address} is no sparkdash daemon, or one of another version (its status: {status}).",
            code="daemon_version",
            hint="`sparkdash stop --daemon`, then `sparkdash serve`, or give its address in SPARKDASH_URL.",
        )
    hint = envelope.get("hint") or ""
    # on the wire the message ends with the hint, for clients that show nothing else
    return _build(status, str(message).removesuffix(hint).rstrip(), envelope)


def _build(status: int, message: str, envelope: dict[str, Any]) -> SparkdashError:
    common = {key: envelope.get(key) for key in ("code", "hint", "retry_after")} | {"status": status}
    code = str(envelope.get("code") or "")
    if code.startswith("daemon_"):
        return DaemonError(message, **common)
    if "log_tail" in envelope or "phase" in envelope:
        return EngineError(
            message,
            phase=envelope.get("phase"),
            container_exit=envelope.get("exit_code"),
            log_tail=_items(envelope, "log_tail"),
            evidence=envelope.get("evidence"),
            **common,
        )
    if "problems" in envelope:
        problems, findings = _items(envelope, "problems"), _items(envelope, "findings")
        return ProfileError(message, problems=problems, findings=findings, **common)
    return _BY_STATUS.get(status, AdmissionError if status < 500 else HostError)(message, **common)


def _items(envelope: dict[str, Any], key: str) -> tuple[Any, ...]:
    return tuple(envelope.get(key) or ())


def unreachable_error(address: Address, words: str) -> DaemonError:
    """Make the error of an address where nothing answers. `words`: the reason from the system or OpenSSL."""
    if UNTRUSTED in words:
        return DaemonError(
            f"The certificate of {address} is not trusted on this box.",
            code="daemon_untrusted",
            hint="Name a PEM file with the authority that signed it in SSL_CERT_FILE.",
        )
    start = (
        "Start it with `sparkdash serve`. `sparkdash` and `sparkdash use PROFILE` start it in the background. "
        "For a daemon elsewhere, such as a demo, give its address in SPARKDASH_URL."
    )
    there = "Start a daemon there with `sparkdash serve`, or correct the address in SPARKDASH_URL."
    return DaemonError(f"No sparkdash daemon answers at {address}.", hint=there if address.given else start)


def silent_error(address: Address) -> DaemonError:
    """Make the error of a daemon that accepts the request and does not answer."""
    return DaemonError(
        f"The daemon at {address} did not answer in time.",
        code="daemon_silent",
        hint="Run `sparkdash status` to see whether it answers at all; see its log.",
    )


def hung_up_error(address: Address, how: str) -> DaemonError:
    """Make the error of a connection that ended before the answer did. `how`: name of the exception."""
    return DaemonError(
        f"The daemon at {address} hung up in the middle of an answer ({how}).",
        code="daemon_hung_up",
        hint="Run `sparkdash status` to see whether it still runs.",
    )


@contextmanager
def reading_answer(address: Address) -> Iterator[None]:
    """Raise what the daemon's answer says went wrong, or DaemonError `daemon_version` where it cannot be read."""
    try:
        yield
    except OtherVersion as other:
        raise DaemonError(
            f"The daemon at {address} is sparkdash {other.version}, and this is {__version__}: their states differ.",
            code="daemon_version",
            hint="Install the same version on both sides, then `sparkdash stop --daemon` and `sparkdash serve` there.",
        ) from None
    except StreamError as error:
        raise error_from_answer(FAILED_STREAM, error.envelope.encode(), address) from None
    except ValidationError as error:
        raise DaemonError(
            f"The daemon at {address} is of another version: {_first(error)}.",
            code="daemon_version",
            hint="Restart it: `sparkdash stop --daemon`, then `sparkdash serve`.",
        ) from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'its answer'}: {first['msg']}"
