"""Folders of sparkdash by the XDG rules, each with a variable that overrides it; small files, changed safely."""

import errno
import fcntl
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("sparkdash", appauthor=False)
PYTHON = (sys.executable, "-P")
"""Interpreter for our own programs: without -P a `json.py` in the folder where it is started would run as code."""


def home_relative(file: Path) -> str:
    whole, home = file.expanduser().absolute(), Path.home()
    return f"~/{whole.relative_to(home)}" if whole.is_relative_to(home) else str(whole)


def _given(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def config_dir() -> Path:
    return _given("SPARKDASH_CONFIG_DIR") or _DIRS.user_config_path


def state_dir() -> Path:
    return _given("SPARKDASH_STATE_DIR") or _DIRS.user_state_path


def daemon_log() -> Path:
    return state_dir() / "daemon.log"


def bench_dir() -> Path:
    """Return the folder of measured runs; `SPARKDASH_BENCH_DIR`. A demo shows the runs of its owner."""
    return _given("SPARKDASH_BENCH_DIR") or state_dir() / "bench"


def incidents_dir() -> Path:
    """Return the folder of the evidence of engines that hung, one folder each; anyone may delete them."""
    return state_dir() / "incidents"


def owner(state: Path | None = None) -> str:
    """Return the label of a daemon's containers, by its state folder: two daemons never adopt each other's."""
    return hashlib.sha256(str((state or state_dir()).resolve()).encode()).hexdigest()[:12]


def runtime_dir() -> Path:
    """Return the folder of the unix socket and the lock, gone at logout; `SPARKDASH_RUNTIME_DIR`.

    Where the system gives no such folder (ssh as root, containers) it is in the state folder: a name that anyone can
    guess in /tmp could be another user's socket.
    """
    login = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return _given("SPARKDASH_RUNTIME_DIR") or (login / "sparkdash" if login.is_dir() else state_dir() / "run")


def shipped_profiles() -> Path:
    """Return the folder of the shipped profiles: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    bundled = package / "_profiles"
    return bundled if bundled.is_dir() else package.parent / "profiles"


SMALL = 1_000_000
"""Bytes of a file that people write, or that sparkdash keeps of what they decide. The largest known has 20 KB."""
LARGE = 64_000_000
"""Bytes of a text that people collect, or another program writes: prompts, corpora, tokenizers, clients' settings."""
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, and nothing else: a named pipe would block for ever, a device never end.

    Raises OSError, whose `strerror` says what is there instead.
    """
    _refuse_special(path, path.stat().st_mode)  # before it is opened: a device may act on that
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _refuse_special(path, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def read_small_file(path: Path, most_bytes: int = SMALL) -> bytes:
    """Read a regular file whole. Raises OSError, also for one that is larger than `most_bytes`."""
    with open_regular(path) as file:
        if _is_of_kernel(file.fileno()):
            raise OSError(errno.EINVAL, "it is of the kernel, and not a file", str(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 1e6:g} MB", str(path))
    return content


def read_small_text(path: Path, most_bytes: int = SMALL) -> str:
    """Read a regular file of UTF-8. Raises OSError as `read_small_file`, and UnicodeDecodeError."""
    return read_small_file(path, most_bytes).decode("utf-8")


def _is_of_kernel(descriptor: int) -> bool:
    """Whether it lies in /proc, where a regular file too may never end, or lose to its readers what it tells."""
    with suppress(OSError):
        return os.fstat(descriptor).st_dev == os.stat("/proc").st_dev  # noqa: PTH116 - each second, for each engine
    return False


def _refuse_special(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = _KINDS.get(stat.S_IFMT(mode), "no ordinary file")
        raise OSError(errno.EINVAL, f"it is {what}, and not a file", str(path))


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock of `path` for the block, so that no other process's change is lost. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as lock:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the content at once; the old one stays if that fails. Raises OSError."""
    import tempfile  # slow to load, and few commands write

    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(made).chmod(mode)
        Path(made).replace(path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
