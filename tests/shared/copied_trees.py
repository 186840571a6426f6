"""Trees of files to copy, a link that is cut after so many bytes, and what lies in a folder."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from sparkdash.domain.local_files import CopyKind
from sparkdash.nodes.shipping.copy_context import CopyContext, Sessions
from sparkdash.nodes.shipping.copy_meter import CopyMeter
from sparkdash.nodes.shipping.known_sums import KnownSums
from sparkdash.nodes.shipping.receiver_session import receiver_argv
from sparkdash.nodes.shipping.tree_copy import TreeCopy

CUT = """
import os, subprocess, sys
left, child = int(sys.argv[1]), subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
while left and (data := os.read(0, min(left, 65536))):
    os.write(child.stdin.fileno(), data)
    left -= len(data)
if not left:
    child.kill()
child.stdin.close()
child.wait()
sys.exit(255 if not left else child.returncode)
"""
"""Passes so many bytes on to the receiver, then kills it."""


def receiver(home: Path) -> list[str]:
    """Command of a receiver on a node with this home folder."""
    return ["env", f"HOME={home}", sys.executable, *receiver_argv()[1:]]


def context(home: Path, sums: Path, cuts: Iterable[int] = (), *, pauses_s: tuple[float, ...] = ()) -> CopyContext:
    """Context of a copy to a node: its n-th connection is cut after the n-th number of bytes."""
    left = list(cuts)

    def command() -> list[str]:
        plain = receiver(home)
        return [sys.executable, "-c", CUT, str(left.pop(0)), *plain] if left else plain

    meter = CopyMeter(CopyKind.WEIGHTS, "m", "spark2")
    return CopyContext("spark2", Sessions(command), KnownSums(sums), meter, pauses_s=pauses_s)


def tree_copy(home: Path, sums: Path, cuts: Iterable[int] = (), *, pauses_s: tuple[float, ...] = ()) -> TreeCopy:
    """Copier to such a node."""
    return TreeCopy(context(home, sums, cuts, pauses_s=pauses_s))


def cached_model(hf_home: Path, repo: str, files: dict[str, bytes], commit: str = "c0ffee") -> Path:
    """Write a model into a hub's cache as the hub's library lays it out; large files are named by their sha256."""
    folder = hf_home / "hub" / f"models--{repo.replace('/', '--')}"
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    for name, content in files.items():
        large = name.endswith(".safetensors")
        digest = hashlib.sha256(content).hexdigest() if large else hashlib.sha1(content).hexdigest()
        (folder / "blobs" / digest).write_bytes(content)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder / "blobs" / digest, link.parent))
    return folder


def contents(folder: Path) -> dict[str, bytes | str]:
    """All files and links below a folder: contents, targets."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = f"-> {path.readlink()}"
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found
