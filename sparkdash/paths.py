"""Where sparkdash keeps its things.

Owns: the folders, by the XDG rules (platformdirs), each overridable by one variable for tests and demos.
Must not know what is stored in them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("sparkdash", appauthor=False)


def _given(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def config_dir() -> Path:
    """Settings and the owner's profiles; `SPARKDASH_CONFIG_DIR`."""
    return _given("SPARKDASH_CONFIG_DIR") or _DIRS.user_config_path


def state_dir() -> Path:
    """The database and logs; `SPARKDASH_STATE_DIR`."""
    return _given("SPARKDASH_STATE_DIR") or _DIRS.user_state_path


def daemon_log() -> Path:
    """Log file of a daemon that was started in the background."""
    return state_dir() / "daemon.log"


def bench_dir() -> Path:
    """The measured runs, a folder each; `SPARKDASH_BENCH_DIR`. A demo has folders of its own, but shows these."""
    return _given("SPARKDASH_BENCH_DIR") or state_dir() / "bench"


def flags_dir() -> Path:
    """Folder of the flags that engines' programs list in their `--help`, a file each; anyone may delete them."""
    return state_dir() / "flags"


def incidents_dir() -> Path:
    """Folder of the evidence of engines that hung, a folder each; anyone may delete them."""
    return state_dir() / "incidents"


def owner(state: Path | None = None) -> str:
    """What a daemon's containers are labelled with: its state folder (ours unless given) hashed, so that two daemons on one box never adopt each other's."""
    return hashlib.sha256(str((state or state_dir()).resolve()).encode()).hexdigest()[:12]


def runtime_dir() -> Path:
    """The unix socket and the lock, gone at logout; `SPARKDASH_RUNTIME_DIR`.

    Where the system gives no such folder (ssh as root, containers) it is in the state folder: a name that anyone can
    guess in /tmp could be another user's socket.
    """
    login = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return _given("SPARKDASH_RUNTIME_DIR") or (login / "sparkdash" if login.is_dir() else state_dir() / "run")


def shipped_profiles() -> Path:
    """The profiles that come with sparkdash: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent
    bundled = package / "_profiles"
    return bundled if bundled.is_dir() else package.parent / "profiles"
