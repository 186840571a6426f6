"""Rows of `sparkdash status` about the boxes: memory, guard and GPU of this one, the other nodes, and the link.

Rule: with this box alone there is no word of nodes. What a silent node said last stands behind its age.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.cli.engines.status_rows import status_row, time_since, wrapped_rows
from sparkdash.domain.container import Stranger
from sparkdash.domain.memory import Guard
from sparkdash.domain.metric import Energy, Gpu, Memory, NodeSample, Sample
from sparkdash.domain.node import NodeState
from sparkdash.domain.phrases import figure_text, is_silent, link_between, link_errors, link_text, used_link
from sparkdash.domain.state import Snapshot
from sparkdash.units import DASH, GIB, duration, energy_text, gib, number, percent

STALE_S = 5.0
"""Figures older than this are shown with their age."""


def box_rows(world: Snapshot) -> Iterator[str]:
    """Format the rows of all boxes, this one first."""
    if world.nodes:
        yield status_row("node", f"{world.daemon.host}  this box")
    yield from _box(world)
    for _, state in sorted(world.nodes.items()):
        yield from _node(state, world.sample.nodes.get(state.name) if world.sample else None, world)
    link = link_between(world.sample.nodes, world.nodes) if world.sample else None
    if link is not None:
        errors = link_errors(link)
        yield status_row("link", f"{link.name}  {link_text(link)}{f'  {errors}' if errors else ''}{_age(world)}")


def _node(state: NodeState, found: NodeSample | None, world: Snapshot) -> Iterator[str]:
    yield status_row("node", "  ".join(_node_words(state, found, world)))
    if is_silent(state):
        yield from wrapped_rows("", state.reason or "No answer; sparkdash tries again.")
    for owed in state.owed:
        yield from wrapped_rows("", f"{owed} ends there as soon as the node answers.")
    memory = found.memory if found else None
    if memory is None or found is None:
        yield status_row("memory", DASH)
        return
    old = world.at - found.at
    if is_silent(state):
        last = f"{gib(memory.available)} available of {gib(memory.total)}"
        yield status_row("memory", f"{DASH}  {duration(max(old, 0.0))} ago: {last}")
        return
    yield status_row("memory", _memory(memory) + (f"  ({duration(old)} ago)" if old > STALE_S else ""))
    if found.gpu:
        yield status_row("gpu", _gpu(found.gpu))


def _node_words(state: NodeState, found: NodeSample | None, world: Snapshot) -> Iterator[str]:
    yield state.name
    yield f"{state.status} {time_since(state.since, world)}"
    if state.link:
        link = used_link(found.links, state.link) if found else None
        yield f"link {state.link}" + (" down" if link is not None and link.up is False else "")
    if state.guarded:
        yield "memory guard runs"
    if world.daemon.simulated:
        yield "SIMULATED"


def _box(world: Snapshot) -> Iterator[str]:
    if world.sample and len(world.sample.engines) > 1 and world.sample.decode.value is not None:
        rate = figure_text(world.sample.decode, lambda value: number(value, 1))
        yield status_row("box", f"decode {rate} tok/s, all engines together")
    yield from _memory_rows(world)
    if world.guard:
        yield from _guard(world.guard, world)
    if world.sample and world.sample.gpu:
        yield from _gpu_rows(world.sample, world.sample.gpu)


def _memory_rows(world: Snapshot) -> Iterator[str]:
    memory = world.sample.memory if world.sample else None
    if memory is None:
        yield status_row("memory", DASH)
        return
    yield status_row("memory", _memory(memory) + _age(world))
    for each in memory.strangers:
        yield from wrapped_rows("others", _stranger(each))


def _gpu_rows(sample: Sample, gpu: Gpu) -> Iterator[str]:
    yield status_row("gpu", _gpu(gpu))
    if sample.energy:
        yield status_row("energy", _energy(sample.energy, sample))
    if sample.low_power:
        yield from wrapped_rows(
            "", "stuck in its low-power state, which slows every engine: unplug the power for a minute"
        )


def _guard(guard: Guard, world: Snapshot) -> Iterator[str]:
    floors = guard.floors
    if floors is None:
        yield status_row("guard", "off" + (": the memory is simulated" if world.daemon.simulated else ""))
        return
    acts = f"{number(floors.hold / GIB, 1)} holds loads back, {number(floors.kill / GIB, 1)} kills"
    does = acts if guard.mode == "act" else "and does no more"
    level = guard.level if guard.since is None else f"{guard.level} for {time_since(guard.since, world)}"
    yield status_row("guard", f"{level}  under {gib(floors.warn)} warns, {does}")
    for kill in guard.kills[:1]:
        yield status_row(
            "", f"killed {kill.profile} {time_since(kill.at, world)} ago, at {gib(kill.available)} available"
        )


def _age(world: Snapshot) -> str:
    """Return the age of a stale sample: the box is sampled less often while nobody watches."""
    old = world.at - world.sample.at if world.sample else 0.0
    return f"  ({duration(old)} ago)" if old > STALE_S else ""


def _stranger(each: Stranger) -> str:
    takes = [gib(each.bytes), *(["a GPU"] if each.gpu else []), *(f"port {port}" for port in each.ports)]
    return f"{each.name} ({each.image or 'no image'}) has {', '.join(takes)}; not started by sparkdash, left alone"


def _memory(memory: Memory) -> str:
    held = [size for size in memory.engines.values() if size is not None]
    engines = gib(sum(held)) if held or not memory.engines else DASH
    return f"{gib(memory.available)} available of {gib(memory.total)}  engines {engines}  reserve {gib(memory.reserve)}"


def _energy(energy: Energy, sample: Sample) -> str:
    """Format the energy since the daemon started, and that per 1,000 output tokens of each profile."""
    rates = {name: each.gateway.wh_per_1k for name, each in sample.engines.items() if each.gateway}
    told = [f"{name} {number(rate, 2)} Wh per 1k tokens" for name, rate in rates.items() if rate is not None]
    spent = f"{energy_text(energy.busy_wh)} busy  {energy_text(energy.idle_wh)} idle  ({energy.sensor})"
    return "  ".join((spent, *told))


def _gpu(gpu: Gpu) -> str:
    return (
        f"{percent(gpu.utilization)}  {number(gpu.power_w, 0, ' W')}  {number(gpu.temperature_c, 0, ' °C')}  "
        f"{number(gpu.sm_clock_mhz, 0, ' MHz')}"
    )
