"""Large uploads, kept on the disk until their engine has them."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, cast

from sparkdash.errors import AdmissionError
from sparkdash.gateway.http.exchange import BodyBudget, BodyShare
from sparkdash.units import MIB

PIECE = 256 * 1024
"""Bytes that are read and sent at once."""
BATCH = MIB
"""Bytes that are written at once: each write is a call in a thread."""
FREE_MIB = 1024
"""Space that uploads leave on the disk."""
DISK_RETRY_S = 60.0


class Uploads:
    """Uploads of the gateway, in one folder with one budget of disk space."""

    def __init__(self, folder: Path, limit_mib: int) -> None:
        self._folder = folder
        self._budget = BodyBudget(limit_mib, "uploads_limit_mib")

    @property
    def taken(self) -> int:
        return self._budget.taken

    async def begin(self) -> Upload:
        """Open an empty upload. Raises AdmissionError: code `disk_full`, status 507."""
        try:
            file = await asyncio.to_thread(self._opened)
        except OSError as error:
            raise _no_space(self._folder, error.strerror or str(error)) from None
        return Upload(self._folder, file, self._budget.share())

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cast("BinaryIO", tempfile.TemporaryFile(dir=self._folder, buffering=0))


class Upload:
    """Body kept on disk; `close` it. `size`: bytes that were appended."""

    def __init__(self, folder: Path, file: BinaryIO, share: BodyShare) -> None:
        self._folder = folder
        self._file = file
        self._share = share
        self._batch = bytearray()
        self._put: tuple[int, int, bytes] | None = None
        """Begin and end of the bytes that are replaced, and what stands in their place."""
        self.size = 0

    async def append(self, part: bytes) -> None:
        """Add a part of the body. Raises AdmissionError: 503 `bodies_full`: all uploads together; 507 `disk_full`."""
        self._share.reserve(len(part))
        self.size += len(part)
        self._batch += part
        if len(self._batch) >= BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Write what is kept in memory. Raises AdmissionError: 507 `disk_full`."""
        batch, self._batch = bytes(self._batch), bytearray()
        try:
            await asyncio.to_thread(self._write, batch)
        except OSError as error:
            raise _no_space(self._folder, error.strerror or str(error)) from None

    def _write(self, batch: bytes) -> None:
        if shutil.disk_usage(self._folder).free < FREE_MIB * MIB:
            raise OSError(f"less than {FREE_MIB} MiB are free")
        view = memoryview(batch)
        while view:
            view = view[self._file.write(view) :]

    def replaced(self, span: tuple[int, int] | None, text: bytes) -> UploadBody:
        """Return the body with the bytes of `span` replaced; None: as it is."""
        return UploadBody(self._file.fileno(), self.size, span, text)

    def close(self) -> None:
        self._file.close()
        self._share.release()


class UploadBody:
    """Body of a request that is read from an upload while it is sent; it can be sent again."""

    def __init__(self, descriptor: int, size: int, span: tuple[int, int] | None, text: bytes) -> None:
        self._descriptor = descriptor
        begin, end = span or (size, size)
        self._ranges = ((0, begin), (end, size))
        self._text = text if span else b""
        self.size = begin + len(self._text) + size - end

    async def pieces(self) -> AsyncIterator[bytes]:
        (begin, until), (then, end) = self._ranges
        async for piece in self._read(begin, until):
            yield piece
        if self._text:
            yield self._text
        async for piece in self._read(then, end):
            yield piece

    async def _read(self, at: int, end: int) -> AsyncIterator[bytes]:
        while at < end:
            piece = await asyncio.to_thread(os.pread, self._descriptor, min(PIECE, end - at), at)
            if not piece:
                raise EOFError("an upload's file is shorter than what was written")
            at += len(piece)
            yield piece


def _no_space(folder: Path, why: str) -> AdmissionError:
    return AdmissionError(
        f"The upload cannot be kept in {folder}: {why}.",
        code="disk_full",
        status=507,
        retry_after=DISK_RETRY_S,
        hint="Free space on the box, or set cache_dir in config.toml to another disk.",
    )
