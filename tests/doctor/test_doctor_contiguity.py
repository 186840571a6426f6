"""The doctor's words about large free blocks, and about the kernel."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.metric import Gpu
from sparkdash.domain.node import Status

BUDDYINFO = "/proc/buddyinfo"


def fragmented(spark: Any, blocks: int) -> None:
    spark.write(BUDDYINFO, f"Node 0, zone   Normal 900000 {'900 ' * 12}{blocks}\n")


async def test_fragmented_memory_is_told_with_what_a_load_would_need(spark: Any) -> None:
    fragmented(spark, 140)
    (finding,) = await spark.examine("contiguity")
    assert finding.status is Status.WARN
    assert "fragmented: 140 of 200 free 32 MiB blocks, with 109.7 GiB available" in finding.evidence
    assert "reboot before a big load" in (finding.fix or "")


async def test_memory_full_of_page_cache_is_no_fragmented_memory(spark: Any) -> None:
    """There is hardly anything free to be in pieces; a load gets its blocks from the cache."""
    spark.write(BUDDYINFO, f"Node 0, zone   Normal {'90 ' * 13}20\n")
    (finding,) = await spark.examine("contiguity")
    assert (finding.status, "page cache" in finding.evidence) == (Status.NOTE, True)


async def test_few_blocks_are_no_finding_where_engines_hold_the_memory(spark: Any, meminfo: Any) -> None:
    """Only what could still be let in is judged."""
    fragmented(spark, 0)
    spark.write("/proc/meminfo", meminfo(MemAvailable=7 << 20, MemFree=7 << 20))
    assert [one.status for one in await spark.examine("contiguity")] == [Status.OK]


async def test_another_box_gets_its_figures_and_no_verdict(spark: Any) -> None:
    fragmented(spark, 0)
    spark.gpu = [Gpu(name="NVIDIA GeForce RTX 5090")]
    (finding,) = await spark.examine("contiguity")
    assert (finding.status, "32 MiB blocks: 0 free" in finding.evidence) == (Status.OK, True)


@pytest.mark.parametrize("text", ["", "what is this\n"])
async def test_a_kernel_that_does_not_tell_is_unknown(spark: Any, text: str) -> None:
    spark.write(BUDDYINFO, text)
    (finding,) = await spark.examine("contiguity")
    assert finding.status is Status.UNKNOWN


async def test_the_kernel_that_failed_most_is_named(spark: Any) -> None:
    spark.changes = {"kernel": "7.0.0-1019-nvidia"}
    _, kernel = await spark.examine("contiguity")
    assert kernel.status is Status.NOTE
    assert "Kernel 7.0.0-1019-nvidia failed 7 boots of 7" in kernel.evidence
