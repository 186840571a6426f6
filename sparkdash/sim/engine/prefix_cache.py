"""Prefix cache like vLLM's: fixed blocks, each identified by the hash of all tokens up to its end.

Owns: which blocks are in use, which are kept for reuse, and who leaves first (least recently used).
Must not know requests, time or text. A block's number does not matter, only how many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

BLOCK_TOKENS = 16
"""vLLM's default block size on CUDA."""


@dataclass(slots=True)
class HeldBlocks:
    """Blocks of one request: full ones by key, and fresh ones without a key."""

    keys: list[int] = field(default_factory=list)
    fresh: int = 0


class PrefixCache:
    """Pool of `capacity_tokens` in blocks. Not thread-safe; owned by one engine."""

    def __init__(self, capacity_tokens: int, block: int = BLOCK_TOKENS) -> None:
        self.block = block
        self.blocks = max(1, capacity_tokens // block)
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._fresh = 0

    @property
    def capacity(self) -> int:
        """Capacity in tokens."""
        return self.blocks * self.block

    @property
    def in_use(self) -> int:
        """Number of blocks that requests hold. Kept blocks count as free, as in vLLM."""
        return len(self._held) + self._fresh

    @property
    def usage(self) -> float:
        """Used share, 0..1."""
        return self.in_use / self.blocks

    def matched(self, tokens: Sequence[bytes]) -> list[int]:
        """Return the keys of the longest known prefix, without the last token, which is always computed."""
        keys: list[int] = []
        for key in self._chain(tokens, (len(tokens) - 1) // self.block):
            if key not in self._held and key not in self._idle:
                break
            keys.append(key)
        return keys

    def take(self, keys: Sequence[int]) -> HeldBlocks:
        """Hold the blocks that `matched` returned."""
        for key in keys:
            self._hold(key)
        return HeldBlocks(keys=list(keys))

    def fits(self, blocks: int) -> bool:
        """Whether this many fresh blocks are available now."""
        return self.in_use + blocks <= self.blocks

    def grow(self, holding: HeldBlocks, tokens: int) -> bool:
        """Make room for `tokens` in all by evicting the least recently used blocks; False when the pool is full."""
        need = -(-tokens // self.block) - len(holding.keys) - holding.fresh
        if not self.fits(max(0, need)):
            return False
        holding.fresh += max(0, need)
        self._fresh += max(0, need)
        while self.in_use + len(self._idle) > self.blocks:
            self._idle.popitem(last=False)
        return True

    def publish(self, holding: HeldBlocks, tokens: Sequence[bytes]) -> None:
        """Assign keys to the full blocks of `tokens`, so that other requests can share them."""
        start = len(holding.keys)
        if len(tokens) // self.block <= start:
            return
        for key in self._chain(tokens, len(tokens) // self.block, holding.keys):
            holding.fresh -= 1
            self._fresh -= 1
            self._hold(key)
            holding.keys.append(key)

    def release(self, holding: HeldBlocks) -> None:
        """Return all blocks. Full blocks are kept for reuse; the tail is evicted before the head. Idempotent."""
        for key in reversed(holding.keys):
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self._idle[key] = None
        self._fresh -= holding.fresh
        holding.keys, holding.fresh = [], 0

    def clear(self) -> None:
        """Drop the blocks kept for reuse."""
        self._idle.clear()

    def _hold(self, key: int) -> None:
        self._idle.pop(key, None)
        self._held[key] = self._held.get(key, 0) + 1

    def _chain(self, tokens: Sequence[bytes], until: int, known: Sequence[int] = ()) -> list[int]:
        key = known[-1] if known else 0
        keys = []
        for index in range(len(known), until):
            key = hash((key, *tokens[index * self.block : (index + 1) * self.block]))
            keys.append(key)
        return keys
