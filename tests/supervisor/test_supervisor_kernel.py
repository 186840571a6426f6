"""Why an engine ended, by the kernel's log beside the engine's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from test_supervisor_nodes import SecondNode

from sparkdash.domain.engine import EngineState, Failure
from sparkdash.domain.incident import Evidence, EvidenceRequest
from sparkdash.errors import EngineError
from sparkdash.host.kernel_log.lines import KernelFindings, findings, read_line
from sparkdash.supervisor.liveness.engine_end import REMOVAL_S, with_kernel

KILL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/machine.slice/libpod-{id}.scope,task=python3,pid=4711,uid=1000",
    "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:83886080kB, file-rss:0kB, shmem-rss:0kB, UID:0",
)
XID = "NVRM: Xid (PCI:000f:01:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault"


class Kernel:
    """A kernel's log that holds these lines, all of the same moment; None: not readable."""

    def __init__(self, *texts: str, at: float = 0.0, closed: bool = False) -> None:
        self.texts, self.at, self.closed = texts, at, closed
        self.asked = 0

    async def since(self, unix_s: float) -> KernelFindings | None:
        self.asked += 1
        if self.closed:
            return None
        lines = [line for text in self.texts if (line := read_line(text, self.at)) and line.at >= unix_s]
        return findings(lines)


def failure_of(house: Any, name: str = "a") -> Failure:
    assert house.state(name) is EngineState.FAILED
    found: Failure = house.supervisor.engines[name].failure
    return found


async def dies(house: Any, code: int = 137, *words: str) -> Failure:
    """The engine of `a` was serving and ends."""
    container = house.runtime.of("a")
    for line in words:
        container.say(line)
    await house.runtime.end(container, code)
    await house.clock.drive(house.clock.sleep(2 * REMOVAL_S))  # an end by a signal may be somebody's removal
    await house.settled()
    return failure_of(house)


async def test_an_engine_that_the_kernel_killed_says_so_with_its_size(house: Any, make_profile: Any) -> None:
    """The control group is the container's: the exit code alone could be anybody's kill."""
    kernel = Kernel()
    await house.open(make_profile("a"), kernel_log=kernel)
    await house.leased("a")
    info = await house.runtime.inspect(house.runtime.of("a").spec.name)
    kernel.texts, kernel.at = tuple(text.replace("{id}", info.id) for text in KILL), house.clock.now()
    failure = await dies(house)
    assert failure.code == "out_of_memory"
    assert failure.message == "a died. The kernel killed python3 (pid 4711, which held 80 GiB) for want of memory."
    assert failure.hint is not None
    assert "shorter context" in failure.hint


async def test_another_process_killed_just_before_is_told_beside_the_engines_own_words(
    house: Any, make_profile: Any
) -> None:
    """It may be the same shortage; the engine's reason stays."""
    kernel = Kernel()
    await house.open(make_profile("a"), kernel_log=kernel)
    await house.leased("a")
    kernel.texts, kernel.at = tuple(text.replace("{id}", "cd" * 32) for text in KILL), house.clock.now() - 5
    failure = await dies(house, 1, "RuntimeError: shape is invalid")
    assert failure.code == "engine_crash"
    assert "shape is invalid" in failure.message
    assert failure.message.endswith("The kernel killed python3 (pid 4711, which held 80 GiB) for want of memory.")


async def test_a_fault_of_the_gpu_is_told_with_its_number_and_what_to_do(house: Any, make_profile: Any) -> None:
    """Xid 31 as its engine dies."""
    kernel = Kernel(XID)
    await house.open(make_profile("a"), kernel_log=kernel)
    await house.leased("a")
    kernel.at = house.clock.now() - 5
    failure = await dies(house, 1, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    assert "Xid 31 (the engine's GPU program read memory that is not there)" in failure.message
    assert "illegal memory access" in failure.message
    assert failure.hint is not None
    assert "another build" in failure.hint


async def test_an_old_fault_explains_nothing(house: Any, make_profile: Any) -> None:
    """An hour ago another engine had it."""
    kernel = Kernel(XID)
    await house.open(make_profile("a"), kernel_log=kernel)
    await house.leased("a")
    kernel.at = house.clock.now() - 3600
    assert "Xid" not in (await dies(house, 1, "RuntimeError: x")).message
    assert kernel.asked == 1


async def test_a_log_that_is_closed_to_us_changes_nothing(house: Any, make_profile: Any) -> None:
    """Most owners are in the group adm; who is not has the engine's words."""
    kernel = Kernel(closed=True)
    await house.open(make_profile("a"), kernel_log=kernel)
    await house.leased("a")
    assert (await dies(house)).message == "a died. The engine was killed (SIGKILL) without a word."


async def test_a_failed_load_has_the_kernels_line_of_its_own_time(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Memory that the driver was refused since the load began; what was before is not asked for."""
    line = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
    kernel = Kernel(line, at=house.clock.now() + 1)
    house.runtime.zoo["a"] = behaviour(dies_after_s=2, lines=("INFO starting",))
    await house.open(make_profile("a"), kernel_log=kernel)
    with pytest.raises(EngineError) as caught:
        await house.leased("a")
    assert "The NVIDIA driver was refused memory (NV_ERR_NO_MEMORY)" in caught.value.message


async def test_a_load_that_stands_still_keeps_its_evidence_and_the_kernels_word(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Taken before it is ended: its processes, and what the kernel told since the load began."""
    kernel = Kernel("INFO: task python3:77 blocked for more than 120 seconds.", at=house.clock.now() + 1)
    asked: list[tuple[EvidenceRequest, bool]] = []

    async def take(request: EvidenceRequest) -> Evidence:
        asked.append((request, "sparkdash-a" in house.runtime.here))
        return Evidence("/state/incidents/1")

    house.runtime.zoo["a"] = behaviour(never_ready=True)
    await house.open(make_profile("a"), kernel_log=kernel, take_evidence=take, no_progress_s=20)
    with pytest.raises(EngineError) as caught:
        await house.leased("a")
    assert (caught.value.code, caught.value.evidence) == ("no_progress", "/state/incidents/1")
    assert "made no progress for" in caught.value.message
    assert caught.value.message.endswith("no memory taken. The task python3 (pid 77) stands still in the kernel.")
    ((request, was_there),) = asked
    assert was_there
    assert (request.profile, bool(request.pids), bool(request.log)) == ("a", True, True)
    assert failure_of(house).evidence == "/state/incidents/1"


async def test_a_cause_that_its_log_names_is_not_looked_for_in_the_kernels() -> None:
    """An unknown flag has nothing to do with the kernel."""
    kernel, failure = Kernel(XID), Failure(code="unknown_flag", message="It refused its command line")
    assert await with_kernel(cast("Any", SimpleNamespace(kernel_log=kernel)), "a", "a", failure, 0.0) is failure
    assert kernel.asked == 0


@pytest.mark.parametrize(("node", "asked"), [("spark2", 0), ("local", 1)])
async def test_the_kernel_of_this_box_is_asked_only_about_engines_that_run_here(
    house: Any, make_profile: Any, node: str, asked: int
) -> None:
    """A process that was killed here says nothing about an engine on another node."""
    kernel = Kernel()
    await house.open(make_profile("a", node=node), nodes=SecondNode(house), kernel_log=kernel)
    await house.leased("a")
    kernel.texts, kernel.at = tuple(text.replace("{id}", "cd" * 32) for text in KILL), house.clock.now() - 5
    failure = await dies(house, 1, "RuntimeError: shape is invalid")
    assert ("The kernel killed" in failure.message) is bool(asked)
    assert kernel.asked == asked


@pytest.mark.parametrize(("node", "asked"), [("spark2", 0), ("local", 1)])
async def test_a_load_that_stands_still_on_another_node_has_no_word_of_this_boxs_kernel(
    house: Any, make_profile: Any, behaviour: Any, node: str, asked: int
) -> None:
    kernel = Kernel("INFO: task python3:77 blocked for more than 120 seconds.", at=house.clock.now() + 1)
    house.runtime.zoo["a"] = behaviour(never_ready=True)
    await house.open(make_profile("a", node=node), nodes=SecondNode(house), kernel_log=kernel, no_progress_s=20)
    with pytest.raises(EngineError) as caught:
        await house.leased("a")
    assert ("stands still in the kernel" in caught.value.message) is bool(asked)
    assert kernel.asked == asked
