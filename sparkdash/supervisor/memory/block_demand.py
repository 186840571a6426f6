"""Block demand: how many large free blocks loads ask for, and what too few of them lead to.

Owns: the settings and figures that the verdict (`contiguity`) is asked with. Must not know how blocks are won back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from sparkdash.domain.profile import Profile
from sparkdash.supervisor.memory import contiguity
from sparkdash.supervisor.memory.contiguity import BlockDemand
from sparkdash.supervisor.tools import Tools

Mode = Literal["refuse", "warn", "off"]


async def shortage_mode(tools: Tools) -> Mode:
    """Return what too few large blocks lead to.

    Unless the owner chose: a refusal where the GPU takes its memory from the kernel's own pool, and nothing elsewhere,
    since it was seen nowhere else.
    """
    if tools.settings.contiguity is not None:
        return tools.settings.contiguity
    gpu = (await tools.reader.gpu()).gpu
    return "refuse" if gpu is not None and gpu.unified else "off"


def blocks_asked(tools: Tools, profile: Profile) -> BlockDemand:
    """Return the blocks that a load of this profile asks for."""
    if not profile.gpu:
        return BlockDemand(0, "it uses no GPU")
    past = tools.store.contiguity if tools.store else ()
    return contiguity.blocks_for(tools.needs(profile).room_bytes, past)


async def enough_for_all(tools: Tools, loads: Iterable[Profile]) -> bool:
    """Whether the free blocks do for all these loads at once; True where nothing is refused for blocks."""
    seen, wanted = tools.reader.contiguity(), sum(blocks_asked(tools, each).blocks for each in loads)
    return seen is None or seen.blocks >= wanted or await shortage_mode(tools) != "refuse"
