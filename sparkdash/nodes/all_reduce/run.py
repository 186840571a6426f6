"""Run of an all-reduce between two boxes.

Owns: start, log and end of its containers on both boxes, however it ends. Must not know ssh, or what a rank does.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.node import Link, NodeFacts, NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.errors import EngineError, HostError, SparkdashError
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.all_reduce import rank_script
from sparkdash.nodes.all_reduce.ranks import LABEL_MEASURE, LIMIT_S, measurements, parse_answer, rank_containers
from sparkdash.nodes.link.measure_tcp import PORTS
from sparkdash.nodes.link.record import LinkRun, LinkTool

TAIL = 12
"""Last lines of each rank's log in an error."""
GRACE_S = 1.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AllReduceInputs:
    """Boxes and profile of a run: `nodes` in the order of the ranks, with a runtime and facts for each by name."""

    profile: Profile
    nodes: Sequence[NodeLaunch]
    runtimes: Mapping[str, Runtime]
    facts: Mapping[str, NodeFacts]


async def run_all_reduce(inputs: AllReduceInputs, progress: Progress) -> LinkRun:
    """Measure all-reduces of several sizes between the nodes.

    Raises:
        EngineError: all_reduce_failed, with the last lines of both ranks.
        HostError: image_missing, node_unreachable, and those of the runtimes.
        ProfileError: the profile has no image.
    """
    specs = rank_containers(
        inputs.profile,
        inputs.nodes,
        inspect.getsource(rank_script),
        containerised=all(runtime.containerised for runtime in inputs.runtimes.values()),
        port=random.randint(*PORTS),  # noqa: S311 - no secret
        tag=secrets.token_hex(4),
    )
    at = time.time()
    await _require_image(inputs, specs)
    await asyncio.gather(*(_end_leftovers(inputs.runtimes[spec.node]) for spec in specs))
    try:
        progress("starting both ranks")
        await asyncio.gather(*(inputs.runtimes[spec.node].start(spec) for spec in specs))
        answers = await _answers(inputs, specs, progress)
    finally:
        await _end(inputs, specs, progress)
    return _record(inputs, at, answers)


async def _require_image(inputs: AllReduceInputs, specs: Sequence[ContainerSpec]) -> None:
    for spec in specs:
        if spec.image is not None and await inputs.runtimes[spec.node].image_id(spec.image) is None:
            raise HostError(
                f"{spec.node} does not have the image {spec.image}.",
                code="image_missing",
                hint=f"`sparkdash pull {inputs.profile.name}` fetches it here; "
                f"`sparkdash nodes copy {inputs.profile.name}` brings it to the other box.",
            )


async def _end_leftovers(runtime: Runtime) -> None:
    """End ranks of an earlier run whose end was not seen."""
    for left in await runtime.containers({LABEL_MEASURE: ""}):
        await runtime.stop(left.name, GRACE_S)


async def _answers(inputs: AllReduceInputs, specs: Sequence[ContainerSpec], progress: Progress) -> list[dict[str, Any]]:
    """Follow rank 0 until it is done, and end early when another rank ends before."""
    first = asyncio.ensure_future(_followed(inputs.runtimes[specs[0].node], specs[0].name, progress))
    others = [asyncio.ensure_future(_ended(inputs.runtimes[spec.node], spec.name)) for spec in specs[1:]]
    try:
        await asyncio.wait((first, *others), timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():  # in a good run all ranks end at the same moment
            await asyncio.wait((first,), timeout=GRACE_S * 5)
        answers = first.result() if first.done() and not first.cancelled() else []
    finally:
        for each in (first, *others):
            each.cancel()
        await asyncio.wait((first, *others))
    if not any(answer.get("done") for answer in answers):
        raise await _failed(inputs, specs)
    _refuse_wrong_sums(answers)
    return answers


def _refuse_wrong_sums(answers: Sequence[dict[str, Any]]) -> None:
    for answer in answers:
        if answer.get("right") is False:
            raise EngineError(
                f"The all-reduce of {answer['size']} bytes gave wrong sums.",
                code="all_reduce_wrong",
                hint="Compare driver and image of both boxes: `sparkdash nodes check`.",
            )


async def _followed(runtime: Runtime, name: str, progress: Progress) -> list[dict[str, Any]]:
    answers = []
    async for line in runtime.logs(name, follow=True):
        if (answer := parse_answer(line)) is None:
            continue
        answers.append(answer)
        if "size" in answer:
            progress(f"all-reduce of {answer['size']} bytes")
        if answer.get("done"):
            break
    return answers


async def _ended(runtime: Runtime, name: str) -> int:
    return await runtime.wait(name)


async def _failed(inputs: AllReduceInputs, specs: Sequence[ContainerSpec]) -> EngineError:
    """Make the error with the last words of every rank that can be asked."""
    lines: list[str] = []
    for spec in specs:
        said = await _last_words(inputs.runtimes[spec.node], spec.name)
        lines += [f"{spec.node}: {line}" for line in said]
    return EngineError(
        f"The all-reduce between {' and '.join(spec.node for spec in specs)} failed.",
        code="all_reduce_failed",
        log_tail=tuple(lines),
        hint=f"`sparkdash nodes check {specs[-1].node}` examines link, MTU, devices and firewall.",
    )


async def _last_words(runtime: Runtime, name: str) -> list[str]:
    try:
        async with asyncio.timeout(GRACE_S * 10):
            return [line async for line in runtime.logs(name, follow=False, tail=TAIL) if parse_answer(line) is None]
    except (SparkdashError, TimeoutError) as error:
        return [f"its log cannot be read: {error}"]


async def _end(inputs: AllReduceInputs, specs: Sequence[ContainerSpec], progress: Progress) -> None:
    """Remove all containers, also when the run was cancelled. A silent box is left to the rank's own limit."""

    async def remove(spec: ContainerSpec) -> None:
        try:
            await inputs.runtimes[spec.node].stop(spec.name, GRACE_S)
        except SparkdashError:
            progress(
                f"{spec.name} could not be removed from {spec.node}: it ends by itself within {LIMIT_S:.0f} s, and the "
                "next run removes it"
            )

    ending = asyncio.gather(*(remove(spec) for spec in specs))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


def _record(inputs: AllReduceInputs, at: float, answers: Sequence[dict[str, Any]]) -> LinkRun:
    about = answers[0]
    backend = str(about.get("backend"))
    nccl = f", NCCL {about['nccl']}" if about.get("nccl") else ""
    names = [node.name for node in inputs.nodes]
    links: list[Link | None] = [node.link for node in inputs.nodes]
    return LinkRun(
        at=at,
        node=names[-1],
        tool=LinkTool.ALL_REDUCE,
        version=f"torch {about.get('torch')}{nccl}",
        why=None if backend == "nccl" else "The image sees no GPU, so Gloo over TCP was measured and not NCCL.",
        here=links[0],
        there=links[-1],
        facts=dict(inputs.facts),
        profile=inputs.profile.name,
        measurements=measurements(answers, names, backend),
    )
