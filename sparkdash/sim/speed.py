"""Durations of a SimSpec, as functions of context and of concurrent requests.

* Prefill of `n` tokens at context `c`: `n / prefill(c)`.
* One decode step of `s` streams: `mean(E / decode(c)) * s ** 0.45`, where E = 1 + expected accepted drafts. The
  decode speeds of a spec are net, speculation included, so a step of E tokens takes E of their intervals. All
  streams together so make `decode * s ** 0.55` tok/s: published for one model at 1, 2 and 4 streams are 17.0,
  24.1 and 36.4 tok/s, exponents 0.50 and 0.55.
* `time_scale` multiplies every speed.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sparkdash.domain.profile import SimSpec, SimSpeed

SHARING = 0.45
"""Exponent by which concurrent streams slow a step."""


class SimulationClock:
    """Monotonic seconds of the machine, with waiting; tests have one that leaps."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, when: float) -> None:
        """Return at `when`, at once if it has passed. Always yields to other tasks."""
        await asyncio.sleep(max(0.0, when - self.now()))


class SimulatedTiming:
    """Durations of one spec."""

    def __init__(self, spec: SimSpec) -> None:
        self.scale = spec.time_scale
        self.acceptance = spec.acceptance
        self.tokens_per_step = 1.0 + expected_accepted(spec.acceptance)
        self._speeds = tuple(sorted(spec.speeds, key=lambda speed: speed.context)) or (
            SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=2000),
        )

    def prefill_s(self, tokens: int, context: int) -> float:
        return tokens / (self._at(context).prefill_tok_s * self.scale)

    def step_s(self, contexts: Sequence[int]) -> float:
        """Return the time of one decode step of streams at these context lengths; 0 for none."""
        if not contexts:
            return 0.0
        single = sum(self.tokens_per_step / self._at(context).decode_tok_s for context in contexts) / len(contexts)
        return float(single * len(contexts) ** SHARING / self.scale)

    def _at(self, context: int) -> SimSpeed:
        """Interpolate linearly between two neighbours, constant beyond the ends."""
        for low, high in pairwise(self._speeds):
            if low.context <= context < high.context:
                return _between(low, high, (context - low.context) / (high.context - low.context))
        return self._speeds[0] if context < self._speeds[0].context else self._speeds[-1]


def expected_accepted(acceptance: Sequence[float]) -> float:
    """Return mean accepted drafts per step: the sum of the products of the conditional chances."""
    total, reach = 0.0, 1.0
    for chance in acceptance:
        reach *= chance
        total += reach
    return total


def _between(low: SimSpeed, high: SimSpeed, share: float) -> SimSpeed:
    return SimSpeed(
        context=low.context,
        decode_tok_s=low.decode_tok_s + share * (high.decode_tok_s - low.decode_tok_s),
        prefill_tok_s=low.prefill_tok_s + share * (high.prefill_tok_s - low.prefill_tok_s),
    )


_TOKEN = re.compile(
    rb" ?[A-Za-z]{1,5}|[0-9]{1,3}| ?[\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]{1,3}|\s{1,6}|[\x80-\xff]{1,6}|[\x00-\x7f]"
)
_MARK = b"\x01"
"""Set before a token's bytes in its id, so that leading zero bytes survive."""


def tokenize(text: str) -> list[bytes]:
    """Return the tokens of `text`; joined they are its UTF-8 bytes."""
    return _TOKEN.findall(text.encode("utf-8", errors="replace"))


def text_of(tokens: list[bytes]) -> str:
    """Return the text of `tokens`; a character cut in half becomes U+FFFD."""
    return b"".join(tokens).decode("utf-8", errors="replace")


def token_id(token: bytes) -> int:
    """Return a number below 2**50, exact in JSON's doubles."""
    return int.from_bytes(_MARK + token, "big")


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
        return self.blocks * self.block

    @property
    def in_use(self) -> int:
        """Number of blocks that requests hold. Kept blocks count as free, as in vLLM."""
        return len(self._held) + self._fresh

    @property
    def usage(self) -> float:
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
        for key in keys:
            self._hold(key)
        return HeldBlocks(keys=list(keys))

    def fits(self, blocks: int) -> bool:
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
