"""Receiver of files: the script that runs on the other node and writes what is sent to it.

Owns: the files there: their temporary names, checksums, modes and links. Must not know: profiles, engines, sparkdash.
It needs `remote_files`, Python 3.9 and its standard library only. One JSON line on standard input is a request, one on
standard output its answer; `put` is followed by frames of bytes.

Rule 1: a name never leads out of its root, neither by `..` nor through a link.
Rule 2: a file has its own name only when its checksum was right. Until then it is hidden, under a name of its own.
Rule 3: bytes leave the page cache again: on a Spark they would take memory from the engines.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import select
import shutil
import sys
from typing import Any

from sparkdash.nodes.shipping.remote_files import (
    PART,
    STAGING,
    Refused,
    WindowFlusher,
    drop_older_parts,
    existing_path,
    forget_pages,
    lock_part,
    made_path,
    open_parent,
    part_name,
    real_path,
    refuse_target,
    stat_name,
    unlink_unlocked,
    write_all,
)

END, PING = 0, 0xFFFFFFFF
"""Lengths of frames without bytes: the file is complete and its checksum follows; the sender still lives."""
MOST_NAMES = 200_000
IDLE_S = 20.0
"""Longest silence of a living sender: a cut link must not keep its locks for hours."""
TELL = 256 << 20
"""Bytes hashed between two reports."""
_PIECE = 1 << 20
_LINE = 64 << 20


class FileReceiver:
    """Requests of one sender, until it closes the stream or falls silent."""

    def __init__(self, come: int, go: int) -> None:
        self._come = come
        self._go = go
        self._buffer = b""
        with contextlib.suppress(OSError):
            fcntl.fcntl(come, 1031, _PIECE)  # F_SETPIPE_SZ

    def run(self) -> None:
        """Answer requests. An error inside the bytes of a file ends the session, as the stream is out of step then."""
        while (line := self._line()) is not None:
            request = json.loads(line)
            act = getattr(self, "do_" + request.pop("do"))
            try:
                self.tell({"ok": act(**request)})
            except Refused as refused:
                self.tell(refused.facts)
            except OSError as error:
                self.tell({"error": "os", "errno": error.errno, "why": error.strerror, "path": error.filename})
            else:
                continue
            if act == self.do_put:
                return

    def tell(self, answer: dict[str, Any]) -> None:
        """Write one answer."""
        line = (json.dumps(answer) + "\n").encode()
        while line:
            line = line[os.write(self._go, line) :]

    def do_hello(self) -> dict[str, Any]:
        """Tell who this is."""
        return {"host": os.uname().nodename, "home": os.path.expanduser("~"), "uid": os.getuid()}

    def do_ping(self) -> None:
        """Answer, so that the sender knows."""

    def do_space(self, places: list[list[Any]]) -> list[dict[str, Any]]:
        """Tell for each (folder, bytes) what is free, with what else these places take on the same disk."""
        found = [(place, size, os.stat(existing_path(place)).st_dev) for place, size in places]
        return [
            {
                "place": place,
                "needs": sum(size for _, size, other in found if other == device),
                "free": shutil.disk_usage(existing_path(place)).free,
            }
            for place, _, device in found
        ]

    def do_stat(self, root: str, names: list[list[str]]) -> list[list[Any]]:
        """Tell each (name, ident): kind, size, mtime in ns, link target, bytes of its unfinished part."""
        if len(names) > MOST_NAMES:
            raise Refused("too_many")
        return [stat_name(real_path(root), name, ident) for name, ident in names]

    def do_hash(self, root: str, names: list[str]) -> list[str]:
        """Hash files; reports the bytes since the last report meanwhile."""
        sums = []
        for name in names:
            with open_parent(real_path(root), name, make=False) as (folder, last):
                opened = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    sums.append(self._hashed(opened, None).hexdigest())
                finally:
                    os.close(opened)
        return sums

    def do_link(self, root: str, name: str, target: str) -> None:
        """Make a link, in the place of what has its name."""
        if why := refuse_target(name, target):
            raise Refused("bad_name", name=name, why=why)
        with open_parent(made_path(root), name, make=True) as (folder, last):
            part = part_name(last, "link")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            os.symlink(target, part, dir_fd=folder)
            os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)

    def do_tidy(self, root: str) -> int:
        """Remove unfinished parts that nobody writes; return their number."""
        removed = 0
        for folder, _, names in os.walk(real_path(root)):
            for name in names:
                if name.endswith(PART) and unlink_unlocked(os.path.join(folder, name)):
                    removed += 1
        return removed

    def do_remove(self, root: str) -> None:
        """Remove a folder of sparkdash's own, by its name."""
        place = os.path.expanduser(root)
        if not place.endswith(STAGING) or os.path.islink(place):
            raise Refused("bad_name", name=root, why="it is not a folder of sparkdash's own")
        shutil.rmtree(place, ignore_errors=True)

    def do_list(self, root: str) -> list[str]:
        """List the names in a folder; none without it."""
        try:
            return sorted(os.listdir(os.path.expanduser(root)))
        except FileNotFoundError:
            return []

    def do_put(self, root: str, name: str, ident: str, size: int, mode: int, mtime_ns: int) -> None:
        """Answer with the offset that is reached, then take the file's bytes from there."""
        with open_parent(made_path(root), name, make=True) as (folder, last):
            part = part_name(last, ident)
            drop_older_parts(folder, last, part)
            opened = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                lock_part(opened, part, folder)
                self._take(opened, size)
                os.fchmod(opened, (mode & 0o777) | 0o600)
                os.utime(opened, ns=(mtime_ns, mtime_ns))
                os.fdatasync(opened)
                os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):  # a second copy costs less than a full disk
                    os.unlink(part, dir_fd=folder)
                raise
            except Refused as refused:
                if refused.facts["error"] == "damaged":
                    os.unlink(part, dir_fd=folder)
                raise
            finally:
                os.close(opened)

    def _take(self, opened: int, size: int) -> None:
        at = os.fstat(opened).st_size
        if at > size:
            os.ftruncate(opened, 0)
            at = 0
        found = self._hashed(opened, at)
        self.tell({"from": at})
        buffer, flusher = memoryview(bytearray(_PIECE)), WindowFlusher(opened, at)
        while (length := int.from_bytes(self._exactly(4), "big")) != END:
            if length == PING:
                continue
            if length > _PIECE or at + length > size:
                raise Refused("out_of_step")
            self._fill(buffer[:length])
            write_all(opened, buffer[:length])
            found.update(buffer[:length])
            at += length
            flusher.reached(at)
        flusher.end()
        if at != size or self._exactly(64).decode() != found.hexdigest():
            raise Refused("damaged")

    def _hashed(self, opened: int, upto: int | None) -> Any:
        found, buffer, at, told = hashlib.sha256(), memoryview(bytearray(_PIECE)), 0, 0
        while upto is None or at < upto:
            count = os.readv(opened, [buffer if upto is None else buffer[: min(_PIECE, upto - at)]])
            if not count:
                break
            found.update(buffer[:count])
            at += count
            if at - told >= TELL:
                self.tell({"hashed": at - told})
                forget_pages(opened, told, at)
                told = at
        self.tell({"hashed": at - told})
        forget_pages(opened, told, at)
        return found

    def _line(self) -> bytes | None:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LINE or not (more := self._read()):
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _exactly(self, count: int) -> bytes:
        found = bytearray(count)
        self._fill(memoryview(found))
        return bytes(found)

    def _fill(self, buffer: memoryview) -> None:
        here = min(len(buffer), len(self._buffer))
        buffer[:here] = self._buffer[:here]
        self._buffer = self._buffer[here:]
        while here < len(buffer):
            self._wait()
            count = os.readv(self._come, [buffer[here:]])
            if not count:
                raise SystemExit(0)
            here += count

    def _read(self) -> bytes:
        self._wait()
        return os.read(self._come, 65536)

    def _wait(self) -> None:
        if not select.select([self._come], [], [], IDLE_S)[0]:
            raise SystemExit(0)


if __name__ == "__main__":
    try:
        FileReceiver(0, 1).run()
    except BrokenPipeError:
        sys.exit(0)
