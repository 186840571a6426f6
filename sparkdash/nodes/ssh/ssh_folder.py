"""Folder of ssh's sockets and of the host keys that ssh compares with."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from sparkdash import paths
from sparkdash.domain.node import Node
from sparkdash.nodes.ssh import ssh_command

LONGEST = 60
"""Longest folder: a socket's own name has 25 characters, and ssh adds 17 while it makes the socket."""


@cache
def socket_folder() -> Path:
    """Return the folder of this process, made with access for its user alone; leftovers of ended processes go."""
    folder = paths.runtime_dir() / "ssh"
    if len(os.fsencode(folder)) > LONGEST:
        folder = Path(tempfile.mkdtemp(prefix="sparkdash-ssh-", dir="/tmp"))  # 0700, with a random name
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in folder.iterdir():
        pid = each.name.partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with suppress(OSError):
                each.unlink()
    return folder


def socket_path(folder: Path, node: str, number: int) -> Path:
    return folder / f"{os.getpid()}-{hashlib.sha256(node.encode()).hexdigest()[:8]}-{number}"


def write_known_hosts(folder: Path, node: Node) -> Path:
    """Write the file that pins the node's key, unless it is there; return its path."""
    line = ssh_command.known_hosts_line(node).encode()
    path = folder / f"{hashlib.sha256(line).hexdigest()[:16]}.known_hosts"
    if not path.exists():
        descriptor, made = tempfile.mkstemp(dir=folder, prefix=".known_hosts.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(line)
        Path(made).replace(path)
    return path
