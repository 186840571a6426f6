"""Contiguity: whether free memory lies in blocks large enough for a load; the verdict and its words.

Sources: sparkring launches with 200 or more free blocks of 32 MiB and refuses with fewer (its #173: a box up for 7 days
with 118 GiB available and none left stood at shard 8 of 11 for ten minutes; one just started has 782). Its loads fill a
box of 121 GiB. No figure was published for smaller loads: theirs are in proportion. Unverified on a GB10 of our own.
Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sparkdash.domain.memory import BLOCK
from sparkdash.errors import AdmissionError
from sparkdash.units import GIB, gib

CODE = "fragmented"
MOST_BLOCKS = 200
PER_GIB = 2
"""Blocks for each GiB of a load: 200 for loads of 100 GiB and more."""
SMALL = 8 * GIB
"""Loads below this ask for none; assumed, as no figure was published for them."""
FIX = "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches; echo 1 | sudo tee /proc/sys/vm/compact_memory"

_BY_HAND = (
    f"Drop caches (`{FIX}`; `sparkdash service install --helper | sudo sh` has sparkdash do it) or reboot the box"
)


@dataclass(frozen=True, slots=True)
class BlockDemand:
    """Free blocks of 32 MiB that a load asks for, and why so many."""

    blocks: int
    why: str


def blocks_for(need_bytes: int | None) -> BlockDemand:
    """Return the blocks for a load of this size."""
    if need_bytes is None:
        return BlockDemand(MOST_BLOCKS, "its need is not known, so that it counts as large")
    if need_bytes < SMALL:
        return BlockDemand(0, f"a load under {gib(SMALL)} asks for none")
    blocks = min(MOST_BLOCKS, PER_GIB * need_bytes // GIB)
    return BlockDemand(blocks, f"{PER_GIB} for each GiB of {gib(need_bytes)}, at most {MOST_BLOCKS}")


def enough(blocks: int, wanted: BlockDemand, coming_bytes: int = 0) -> bool:
    """Whether the free blocks do, counting memory that others will give back as if it came in large blocks."""
    return blocks + coming_bytes // BLOCK >= wanted.blocks


def describe_shortage(blocks: int, wanted: BlockDemand) -> str:
    return f"fragmented: {blocks} of {wanted.blocks} free 32 MiB blocks"


def refusal(
    profile: str, blocks: int, wanted: BlockDemand, available: int, tried: Iterable[str] = (), *, as_root: bool = False
) -> AdmissionError:
    """Build the refusal of a load. `as_root`: caches were dropped and memory compacted, so only a restart is left."""
    done = "".join(f" {each}" for each in tried)
    return AdmissionError(
        f"{profile} is not started, as memory is {describe_shortage(blocks, wanted)} ({wanted.why}), "
        f"with {gib(available)} available.{done}",
        code=CODE,
        status=503,
        hint=f"{'Reboot the box' if as_root else _BY_HAND}. "
        '`contiguity = "warn"` in config.toml starts such loads all the same.',
    )


def warning(profile: str, blocks: int, wanted: BlockDemand, available: int) -> str:
    return (
        f"Memory is {describe_shortage(blocks, wanted)} for {profile} ({wanted.why}), "
        f"with {gib(available)} available. It is started, as "
        "`contiguity` is `warn`; the box may stand still while it loads."
    )
