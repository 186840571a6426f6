"""Names of nodes, their memory in plans, and texts about the link, shared by the command line and the screen.

Rule: unknown is not told, and traffic says whether it is RDMA's or TCP's: neither counter sees the other's.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineSample, LinkSample, Metric, NodeSample
from sparkdash.domain.node import LOCAL, NodeState, NodeStatus
from sparkdash.domain.swap import Plan
from sparkdash.units import DASH, bit_rate, counted, gib, number, percent

QUIET_BYTES_S = 125_000
"""Traffic below this (1 Mb/s) is no engine's: ssh and the clocks of both boxes talk all the time."""


def box_name(node: str, host: str) -> str:
    """Return the name that people know a node by; `host` is this box's host name."""
    return host if node == LOCAL else node


def boxes_text(nodes: Iterable[str], host: str) -> str:
    """List the boxes of one engine, the serving one first: "spark-1 + spark2"."""
    return " + ".join(box_name(node, host) for node in nodes)


def plan_boxes(plan: Plan, host: str, *, several: bool) -> str:
    """Name the boxes that a plan is for; empty with one box (not `several`), or while none is chosen."""
    return boxes_text(plan.nodes, host) if several or set(plan.nodes) - {LOCAL} else ""


def now_available(plan: Plan, host: str) -> str:
    """Tell what is available now, of each box where the profile needs several."""
    if len(plan.on_nodes) < 2:
        return gib(plan.now_bytes)
    return ", ".join(f"{gib(one.now_bytes)} on {box_name(one.node, host)}" for one in plan.on_nodes)


def then_available(plan: Plan, host: str) -> str:
    """Tell what will be available once those who leave have left, of each box where the profile needs several."""
    if len(plan.on_nodes) < 2:
        return gib(plan.available_bytes)
    return ", ".join(f"{gib(one.available_bytes)} on {box_name(one.node, host)}" for one in plan.on_nodes)


def is_silent(state: NodeState) -> bool:
    """Whether the node gives no figures now, so that what is known of it is the past."""
    return state.status is not NodeStatus.REACHABLE


def traffic(link: LinkSample) -> float:
    """Add up both directions in bytes per second; unknown counts as none."""
    return (link.received_bytes_s or 0.0) + (link.sent_bytes_s or 0.0)


def used_link(links: Iterable[LinkSample], name: str | None = None) -> LinkSample | None:
    """Return the link that carries most now, else the one of that name, else the fastest that is up; None without."""
    known = list(links)
    busiest = max(known, key=traffic, default=None)
    if busiest is not None and traffic(busiest) >= QUIET_BYTES_S:
        return busiest
    named = next((link for link in known if link.name == name), None)
    return named or max(known, key=lambda link: (bool(link.up), link.rate_gbit_s or 0.0), default=None)


def link_between(samples: Mapping[str, NodeSample], states: Mapping[str, NodeState]) -> LinkSample | None:
    """Return the link of this box towards the others; read at the other end, where this one's is not known."""
    if here := samples.get(LOCAL):
        return used_link(here.links)
    for name, state in states.items():
        there = used_link(samples[name].links, state.link) if name in samples else None
        if there is not None:
            return there.replace(received_bytes_s=there.sent_bytes_s, sent_bytes_s=there.received_bytes_s)
    return None


def link_text(link: LinkSample) -> str:
    """Describe a link: "RDMA 3.1 Gb/s in, 3.0 Gb/s out, 1.6 % of 200 Gb/s", "200 Gb/s, idle", "down"."""
    if link.up is False:
        return "down"
    of = f"{number(link.rate_gbit_s)} Gb/s" if link.rate_gbit_s else ""
    if link.received_bytes_s is None and link.sent_bytes_s is None:
        return of or "up"
    kind = "RDMA" if link.rdma else "TCP"
    if traffic(link) < QUIET_BYTES_S:
        return f"{of}, idle" if of else "idle"
    rates = f"{kind} {bit_rate(link.received_bytes_s)} in, {bit_rate(link.sent_bytes_s)} out"
    share = link_share(link)
    return rates if share is None else f"{rates}, {percent(share, 0 if share >= 0.0995 else 1)} of {of}"


def link_share(link: LinkSample) -> float | None:
    """Return the busier direction as a share of the link's rate; None while one of the two is unknown."""
    if not link.rate_gbit_s or (link.received_bytes_s is None and link.sent_bytes_s is None):
        return None
    return max(link.received_bytes_s or 0.0, link.sent_bytes_s or 0.0) * 8 / (link.rate_gbit_s * 1e9)


def step_share(engine: Engine, sample: EngineSample | None) -> str:
    """Tell which share of a step the link takes at least: "≥ 1.6 %"; DASH while requests run and nobody can tell.

    Empty for an engine on one box, and while it is idle.
    """
    if len(engine.nodes) < 2 or sample is None or not sample.get(Metric.RUNNING):
        return ""
    share = sample.get(Metric.LINK_SHARE)
    return DASH if share is None else f"≥ {percent(share, 0 if share >= 0.0995 else 1)}"


def link_errors(link: LinkSample) -> str:
    """Count the link's errors; empty without any."""
    return counted(link.errors, "error") if link.errors else ""
