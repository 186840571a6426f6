"""Trees of files to copy, a node that is a folder of this box, and a link that is cut after so many bytes."""

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sparkdash.domain.images import CopyKind
from sparkdash.errors import HostError
from sparkdash.nodes.shipping.child import CopyMeter, SshAccess
from sparkdash.nodes.shipping.weights import WeightsCopy

SHELL = """
import os, select, subprocess, sys
home, left = sys.argv[1], int(sys.argv[2])
child = subprocess.Popen(["/bin/sh", "-c", " ".join(sys.argv[4:])], stdin=subprocess.PIPE, cwd=home, env={**os.environ, "HOME": home})
into = child.stdin.fileno()
while left and child.poll() is None:
    if not select.select([0], [], [], 0.01)[0]:
        continue
    if not (data := os.read(0, min(left, 65536))):
        break
    try:
        os.write(into, data)
    except BrokenPipeError:
        break
    left -= len(data)
if not left:
    child.kill()
os.close(into)
child.wait()
sys.exit(255 if not left else child.returncode)
"""
"""Stands for ssh: runs a command in the node's home folder, and breaks after so many bytes towards it."""
MOST = 10**12


class FolderNode(SshAccess):
    """Way to a node that is the folder `home`; its n-th rsync is cut after the n-th number of bytes."""

    def __init__(self, home: Path, cuts: Iterable[int] = (), path: str | None = None) -> None:
        self.home, self.cuts, self.path = home, list(cuts), path

    def command(self, node: str, argv: Sequence[str]) -> Sequence[str]:
        return ["env", f"--chdir={self.home}", f"HOME={self.home}", *argv]

    def rsync_shell(self, node: str) -> tuple[list[str], str]:
        path = ["env", f"PATH={self.path}"] if self.path else []
        cut = self.cuts.pop(0) if self.cuts else MOST
        return [*path, sys.executable, "-c", SHELL, str(self.home), str(cut)], "node"

    def hf_home(self, node: str) -> str:
        return "~/hf"

    def refusal(self, node: str, words: str) -> HostError | None:
        return None


def weights_copy(home: Path, cuts: Iterable[int] = (), path: str | None = None) -> WeightsCopy:
    return WeightsCopy(FolderNode(home, cuts, path), "spark2", CopyMeter(CopyKind.WEIGHTS, "m", "spark2"))


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
