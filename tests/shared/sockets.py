"""A connection's socket in memory."""

import asyncio
from typing import Any


class MemorySocket(asyncio.Transport):
    """Remembers what was written, in all and by packet; `abort` is heard by its protocol."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self._protocol = protocol
        self.written = b""
        self.packets: list[bytes] = []
        self.closing = self.paused = False
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data
            self.packets.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        assert all(list_of_data), "asyncio of Python 3.12 and later turns and turns over an empty one"
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            self._protocol.connection_lost(None)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
