"""HTTP connection to the daemon over the standard library, and the errors out of its answers."""

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationError

from sparkdash import __version__, errors
from sparkdash.api.rows import HttpCall, OtherVersion, StreamError
from sparkdash.client.address import Address, credentials

LINK_LOST = frozenset({"daemon_unreachable", "daemon_silent", "daemon_hung_up"})
"""Codes of a daemon that may come back; any other DaemonError stays after another attempt."""

UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word for an authority that is not trusted, in every HTTP library's error."""


def error_from_answer(status: int, body: bytes, address: Address) -> errors.SparkdashError:
    """Return the error of an answer with `status` >= 400; DaemonError `daemon_version` for an unknown envelope."""
    try:
        envelope = json.loads(body)["error"]
        message = envelope["message"]
    except (ValueError, KeyError, TypeError):
        return errors.DaemonError(
            f"The server at {address} is no sparkdash daemon, or one of another version (its status: {status}).",
            code="daemon_version",
            hint="`sparkdash stop --daemon`, then `sparkdash serve`, or give its address in SPARKDASH_URL.",
        )
    hint = envelope.get("hint") or ""
    # on the wire the message ends with the hint, for clients that show nothing else
    return _build(status, str(message).removesuffix(hint).rstrip(), envelope)


def _build(status: int, message: str, envelope: dict[str, Any]) -> errors.SparkdashError:
    common = {key: envelope.get(key) for key in ("code", "hint", "retry_after")} | {"status": status}
    code = str(envelope.get("code") or "")
    if code.startswith("daemon_"):
        return errors.DaemonError(message, **common)
    if "log_tail" in envelope or "phase" in envelope:
        return errors.EngineError(
            message,
            phase=envelope.get("phase"),
            container_exit=envelope.get("exit_code"),
            log_tail=_items(envelope, "log_tail"),
            evidence=envelope.get("evidence"),
            **common,
        )
    if "problems" in envelope:
        problems, findings = _items(envelope, "problems"), _items(envelope, "findings")
        return errors.ProfileError(message, problems=problems, findings=findings, **common)
    known = {422: errors.ProfileError, 500: errors.SparkdashError, 502: errors.UpstreamError, 504: errors.UpstreamError}
    return known.get(status, errors.AdmissionError if status < 500 else errors.HostError)(message, **common)


def _items(envelope: dict[str, Any], key: str) -> tuple[Any, ...]:
    return tuple(envelope.get(key) or ())


def unreachable_error(address: Address, words: str) -> errors.DaemonError:
    """Make the error of an address where nothing answers. `words`: the reason from the system or OpenSSL."""
    if UNTRUSTED in words:
        return errors.DaemonError(
            f"The certificate of {address} is not trusted on this box.",
            code="daemon_untrusted",
            hint="Name a PEM file with the authority that signed it in SSL_CERT_FILE.",
        )
    start = (
        "Start it with `sparkdash serve`. `sparkdash` and `sparkdash use PROFILE` start it in the background. "
        "For a daemon elsewhere, such as a demo, give its address in SPARKDASH_URL."
    )
    there = "Start a daemon there with `sparkdash serve`, or correct the address in SPARKDASH_URL."
    return errors.DaemonError(f"No sparkdash daemon answers at {address}.", hint=there if address.given else start)


def silent_error(address: Address) -> errors.DaemonError:
    return errors.DaemonError(
        f"The daemon at {address} did not answer in time.",
        code="daemon_silent",
        hint="Run `sparkdash status` to see whether it answers at all; see its log.",
    )


def hung_up_error(address: Address, how: str) -> errors.DaemonError:
    return errors.DaemonError(
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
        raise errors.DaemonError(
            f"The daemon at {address} is sparkdash {other.version}, and this is {__version__}: their states differ.",
            code="daemon_version",
            hint="Install the same version on both sides, then `sparkdash stop --daemon` and `sparkdash serve` there.",
        ) from None
    except StreamError as error:
        raise error_from_answer(503, error.envelope.encode(), address) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "its answer"
        raise errors.DaemonError(
            f"The daemon at {address} is of another version: {where}: {first['msg']}.",
            code="daemon_version",
            hint="Restart it: `sparkdash stop --daemon`, then `sparkdash serve`.",
        ) from None


CONNECT_S = 3.0


class DaemonConnection:
    """A connection to `address`, opened when first asked and again when the daemon has closed it in between."""

    def __init__(self, address: Address) -> None:
        self._address = address
        parts = urlsplit(address.url)
        self._root = parts.path.rstrip("/")
        self._headers = credentials(address)
        self._connection = _UnixConnection(address.uds) if address.uds else _over_tcp(parts)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def exchange(self, request: HttpCall, silence_s: float | None) -> Iterator[HTTPResponse]:
        """Send a request and give its answer; the body is read inside. `silence_s`: the longest pause; None: any."""
        self._open()
        self._connection.sock.settimeout(silence_s)
        content, headers = None, self._headers
        if request.body is not None:
            content, headers = json.dumps(request.body).encode(), {**headers, "Content-Type": "application/json"}
        reply = None
        try:
            self._connection.request(request.method, self._root + request.target, content, headers)
            reply = self._connection.getresponse()
            yield reply
        except TimeoutError:
            raise silent_error(self._address) from None
        except (OSError, HTTPException) as error:
            raise hung_up_error(self._address, type(error).__name__) from None
        finally:
            if reply is None or not reply.isclosed():  # left in the middle
                self._connection.close()

    def _open(self) -> None:
        idle = self._connection.sock
        if idle is not None and not select.select([idle], [], [], 0)[0]:
            return
        self._connection.close()
        try:
            self._connection.connect()
        except OSError as error:
            self._connection.close()
            raise unreachable_error(self._address, str(error)) from None


class _UnixConnection(HTTPConnection):
    """Connection to a unix socket. The host only fills the Host header."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CONNECT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(str(self._path))


def _over_tcp(parts: SplitResult) -> HTTPConnection:
    if parts.scheme == "http":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=CONNECT_S)
    import httpx  # whom it trusts, the rest of the commands trust

    context = httpx.create_ssl_context()
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=CONNECT_S, context=context)


HEALTH = HttpCall("GET", "/health", None)
"""Not part of the control API: it needs no key, and any answer will do."""
HEALTH_S = 5.0
"""Limit of a look at the health. A daemon answers at once; another program that holds its port may never."""
FIRST_ERROR_STATUS = 400


def is_serving(address: Address) -> bool:
    """Whether a daemon answers at this address; never raise."""
    connection = DaemonConnection(address)
    try:
        with connection.exchange(HEALTH, HEALTH_S) as reply:
            return reply.status < FIRST_ERROR_STATUS
    except errors.SparkdashError:
        return False
    finally:
        connection.close()
