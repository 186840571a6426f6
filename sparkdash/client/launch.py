"""Launch: starting the daemon in the background, and waiting until it serves."""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash import paths
from sparkdash.client.address import find_daemon
from sparkdash.client.connection import is_serving
from sparkdash.errors import DaemonError
from sparkdash.paths import PYTHON, open_regular

if TYPE_CHECKING:
    from sparkdash.client.client import Client

COMMAND = (*PYTHON, "-m", "sparkdash", "serve")
LOCK_NAME = "daemon.lock"
"""In `paths.runtime_dir()`; the daemon holds it while it lives."""
LOOK_EVERY_S = 0.1
LAST_LINES = 15
LOG_LIMIT = 8 * 1024**2
"""Bytes after which the log of earlier runs is moved aside, once."""


def ensure_daemon(
    *, command: Sequence[str] = COMMAND, deadline_s: float = 30.0, starting: Callable[[], None] = lambda: None
) -> subprocess.Popen[bytes] | None:
    """Return once a daemon serves, starting one when none does. The process outlives us; None when one served already.

    `starting` is called before one is started.

    Raises:
        DaemonError: it ended, or does not serve within the deadline; a DaemonStartError with its last log lines. Or the
            owner named an address (SPARKDASH_URL) where nothing answers: there nothing is started.
    """
    where = find_daemon()
    if is_serving(where):
        return None
    if where.given:
        _ask_state()
    if _comes_up(deadline_s):
        return None
    starting()
    return _start(command, deadline_s)


def _ask_state() -> None:
    from sparkdash.client.client import Client  # the table of calls is loaded where one is made

    with Client() as client:
        client.state()


def _comes_up(deadline_s: float) -> bool:
    """Wait for a daemon that is there and does not answer. False: there is none. Raises DaemonError at the deadline."""
    limit, lock = time.monotonic() + deadline_s, paths.runtime_dir() / LOCK_NAME
    while _locked(lock):
        if _serves():
            return True
        if time.monotonic() > limit:
            _ask_state()
        time.sleep(LOOK_EVERY_S)
    return False


def wait_ended(client: "Client", *, deadline_s: float = 300.0) -> None:
    """Return once the daemon does not answer any more and, on this box, the next one can start (its lock is free).

    Draining and stopping engines may take minutes. Raises DaemonError at the deadline.
    """
    limit = time.monotonic() + deadline_s
    lock = paths.runtime_dir() / LOCK_NAME
    while client.health() or (not client.address.given and _locked(lock)):
        if time.monotonic() > limit:
            raise DaemonError(
                f"The daemon has not ended within {deadline_s:.0f} s.",
                code="daemon_lingers",
                hint="`sparkdash status` shows what it waits for.",
            )
        time.sleep(LOOK_EVERY_S)


def _locked(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise DaemonError(
            f"The daemon's lock {path} cannot be read ({error.strerror}).",
            code="folder_unusable",
            hint="Another user, perhaps root, may have started a daemon: that user must end it and remove the file.",
        ) from None
    return False


def _start(command: Sequence[str], deadline_s: float) -> subprocess.Popen[bytes]:
    try:
        log, begin = _fresh_log()
        out = log.open("ab")
    except OSError as error:
        raise DaemonError(
            f"The daemon was not started: its log {paths.daemon_log()} cannot be written: {error.strerror}.",
            code="folder_unusable",
            hint="Remove it, make its folder writable, or name another with SPARKDASH_STATE_DIR.",
        ) from None
    with out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    limit = time.monotonic() + deadline_s
    while not _serves():
        if process.poll() is not None and not _serves():
            raise _failed(f"The daemon ended at once, with status {process.returncode}.", log, begin)
        if time.monotonic() > limit:
            process.terminate()
            process.wait()
            raise _failed(f"The daemon did not serve within {deadline_s:.0f} s and was ended.", log, begin)
        time.sleep(LOOK_EVERY_S)
    return process


def _serves() -> bool:
    """Return whether a daemon serves. Look the address up again each time: the socket appears when the daemon does."""
    return is_serving(find_daemon())


def _fresh_log() -> tuple[Path, int]:
    """Return the log and the bytes of earlier runs in it. Raises OSError, also for a pipe or a device."""
    log, size = paths.daemon_log(), 0
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        with open_regular(log) as file:
            size = os.fstat(file.fileno()).st_size
    if size <= LOG_LIMIT:
        return log, size
    log.replace(log.with_suffix(".log.old"))
    return log, 0


def _failed(message: str, log: Path, begin: int) -> DaemonError:
    with open_regular(log) as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]
    return DaemonStartError(message, log_tail=tuple(lines), hint=f"The whole log: {log}")


class DaemonStartError(DaemonError):
    """The daemon could not be started in the background; `log_tail` is what it last said."""

    default_code = "daemon_not_started"

    def __init__(self, message: str, *, log_tail: tuple[str, ...], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.log_tail = log_tail
