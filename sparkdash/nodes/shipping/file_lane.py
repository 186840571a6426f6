"""Lane of a copy: a connection on which files are sent to a node, one after the other.

Owns: resuming a file, and further tries after a cut. Must not know which files are missing. Blocking.
"""

from __future__ import annotations

import hashlib
import time

from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.host.memory.page_cache import read_uncached
from sparkdash.nodes.shipping import copy_errors
from sparkdash.nodes.shipping.copy_context import CopyContext
from sparkdash.nodes.shipping.receiver import IDLE_S
from sparkdash.nodes.shipping.receiver_session import LinkLost, ReceiverRefusal, ReceiverSession
from sparkdash.nodes.shipping.source_files import SourceFile, SourceTree

BUSY_S = IDLE_S + 5.0
"""Longest wait for the receiver of a connection that broke: it notices after IDLE_S."""
ALIVE_S = 5.0
"""Interval of signs of life while a file's beginning is hashed here."""


class _Tries:
    """Further tries of one file: waits before each."""

    def __init__(self, copy: CopyContext) -> None:
        self._copy = copy
        self._pauses_s = iter(copy.pauses_s)
        self._busy_until = time.monotonic() + BUSY_S
        self._was_damaged = False

    def has_another_after_cut(self, lost: LinkLost, *, progressed: bool) -> bool:
        """Wait before the next connection; False when there is no hope in one."""
        if progressed:
            self._pauses_s = iter(self._copy.pauses_s)
        if self._copy.refusal(lost.words) or (pause_s := next(self._pauses_s, None)) is None:
            return False
        self._copy.meter.pause(pause_s)
        return True

    def has_another_after_refusal(self, refusal: ReceiverRefusal, *, resumed: bool) -> bool:
        """Wait while another receiver has the file; try a damaged one once from its beginning."""
        if refusal.error == "busy" and time.monotonic() < self._busy_until:
            self._copy.meter.pause(0.5)
            return True
        if refusal.error == "damaged" and resumed and not self._was_damaged:  # the part may have been of another file
            self._was_damaged = True
            return True
        return False


class FileLane:
    """Connection that sends file after file, and is made again after a cut."""

    def __init__(self, copy: CopyContext, tree: SourceTree) -> None:
        self._copy = copy
        self._tree = tree
        self._session: ReceiverSession | None = None
        self._counted = 0
        """Bytes of the present file that the meter has counted."""

    def __enter__(self) -> FileLane:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def send(self, file: SourceFile, came: int) -> None:
        """Send one file, over as many connections as it takes."""
        tries = _Tries(self._copy)
        self._counted = came
        while True:
            before = self._counted
            try:
                self._try(file)
            except LinkLost as lost:
                self._drop()
                if not tries.has_another_after_cut(lost, progressed=self._counted > before):
                    raise self._copy.lost(lost, self._tree.model) from None
            except ReceiverRefusal as refusal:
                self._drop()
                if not tries.has_another_after_refusal(refusal, resumed=before > 0):
                    raise self._described(file, refusal) from None
            else:
                return

    def _try(self, file: SourceFile) -> None:
        copy = self._copy
        if self._session is None:
            self._session = copy.sessions.open()
        session = self._session
        at = session.ask(
            "put",
            root=self._tree.root,
            name=file.name,
            ident=file_ident(file),
            size=file.size,
            mode=file.mode,
            mtime_ns=file.mtime_ns,
        )
        copy.meter.skip(at - self._counted)
        self._counted = at
        sha256 = self._stream(session, file, at)
        session.end_file(sha256)
        copy.sums.add(copy.node, f"{self._tree.root}/{file.name}", file.size, file.mtime_ns, sha256)
        copy.sums.add(LOCAL, str(file.source), file.size, file.mtime_ns, sha256)

    def _stream(self, session: ReceiverSession, file: SourceFile, start: int) -> str:
        """Send the file from `start`; return its checksum."""
        known = file.sha256 or self._copy.sums.find(LOCAL, str(file.source), file.size, file.mtime_ns)
        if known:
            at = start
            for piece in read_uncached(file.source, start):
                self._send_piece(session, piece)
                at += len(piece)
            self._refuse_changed(file, at)
            return known
        digest = hashlib.sha256()
        at, alive_at = 0, time.monotonic()
        for piece in read_uncached(file.source, 0):
            digest.update(piece)
            fresh = piece[max(0, start - at) :]
            at += len(piece)
            if fresh:
                self._send_piece(session, fresh)
            elif time.monotonic() - alive_at > ALIVE_S:
                session.keep_alive()
                alive_at = time.monotonic()
        self._refuse_changed(file, at)
        return digest.hexdigest()

    def _send_piece(self, session: ReceiverSession, piece: memoryview) -> None:
        session.frame(piece)
        self._counted += len(piece)
        self._copy.meter.add(len(piece))

    def _refuse_changed(self, file: SourceFile, read_bytes: int) -> None:
        """Raise HostError if the file is no longer the one whose copy began."""
        now = file.source.stat()
        if read_bytes != file.size or (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns):
            raise HostError(
                f"{file.source} changed while it was copied to {self._copy.node}.",
                code="copy_source_changed",
                hint="Run it again once nothing writes there.",
            )

    def _described(self, file: SourceFile, refusal: ReceiverRefusal) -> HostError:
        copy, tree = self._copy, self._tree
        if copy_errors.is_full(refusal.facts):
            with copy.session(tree.model, tree.root) as session:
                place = session.ask("space", places=[[tree.root, file.size]])[0]
            return copy_errors.disk_full(copy.node, tree.root, file.size, place["free"])
        return copy_errors.refused(copy.node, tree.model, tree.root, refusal.facts)


def file_ident(file: SourceFile) -> str:
    """Short hash that tells versions of a file apart."""
    version = file.sha256 or f"{file.size} {file.mtime_ns}"
    return hashlib.sha256(f"{file.name}\0{version}".encode()).hexdigest()[:8]
