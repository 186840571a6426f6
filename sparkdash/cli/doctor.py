"""`sparkdash doctor`: examine the box for everything that keeps engines from running well."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.nodes import chosen_nodes, complete_node
from sparkdash.cli.output import print_json, print_styled, print_table, style_text, terminal_width
from sparkdash.cli.parameters import AsJson
from sparkdash.errors import ProfileError, SparkdashError
from sparkdash.units import printable

if TYPE_CHECKING:
    from sparkdash.doctor import Probe
    from sparkdash.doctor.check import DaemonSeen
    from sparkdash.domain.node import Finding

WARNED, FAILED = 1, 5
COLOURS = {"ok": "green", "note": None, "unknown": None, "warn": "yellow", "fail": "red"}
MARK, WIDEST = 9, 100


def complete_check(incomplete: str) -> list[str]:
    from sparkdash.doctor.nodes.examine import check_list

    return [name for name, _ in check_list() if name.startswith(incomplete)]


def doctor(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CHECK", help="Only these checks.", autocompletion=complete_check)
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this node and its pairing.", autocompletion=complete_node)
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the checks, one sentence each.")] = False,
    as_json: AsJson = False,
) -> None:
    """Examine this box and its nodes for what stops engines.

    Checks driver, podman, CDI, memory, disks, ports and settings, and changes nothing. Where there are other nodes,
    checks their podman, images, driver, clocks, memory and disk too, and how they pair with this box: link, MTU, route,
    RDMA. Each finding says what was read, where, and in one line how to fix it; the line is typed on this box. A silent
    node is one finding. Exits 0 if nothing needs to be done (ok, note, unknown), 1 with a warning, 5 if something keeps
    engines from running.

    \b
    Examples:
      sparkdash doctor
      sparkdash doctor cdi cdi-version cdi-driver
      sparkdash doctor --list
      sparkdash doctor --node spark2 mtu route
      sparkdash doctor --json | jq '.findings[] | select(.status == "fail")'
    """
    import asyncio

    from sparkdash.doctor.nodes.examine import check_list, examine_all, examine_registered, with_node_names
    from sparkdash.settings import load_settings

    if list_them:
        told = [{"name": name, "about": about} for name, about in check_list(names or ())]
        rows = [(each["name"], each["about"]) for each in told]
        return print_json(told) if as_json else print_table(("check", "looks at"), rows, "<<")
    if node is None:
        here, of_nodes = asyncio.run(examine_all(probe_box(), names or ()))
    else:
        here, of_nodes = (), asyncio.run(examine_registered(load_settings(), chosen_nodes(node), names or ()))
    found = (*here, *of_nodes)
    counts = {status: count for status in COLOURS if (count := sum(one.status.value == status for one in found))}
    if as_json:
        print_json({"findings": found, "counts": counts})
    else:
        groups = (here, with_node_names(of_nodes, platform.node()))
        print_styled("\n".join(finding_lines(*groups, columns=min(terminal_width(), WIDEST))))
    raise typer.Exit(FAILED if "fail" in counts else WARNED if "warn" in counts else 0)


def finding_lines(*groups: Sequence[Finding], columns: int) -> Iterator[str]:
    """Format groups of findings as printable text; the counts of all come last, where they stay visible."""
    for number, found in enumerate(filter(None, groups)):
        if number:
            yield ""
        yield from _group_lines(found, columns)
    counts = Counter(one.status.value for found in groups for one in found)
    yield ""
    yield ", ".join(
        style_text(f"{counts[status]} {status}", COLOURS[status]) for status in reversed(COLOURS) if counts[status]
    )


def _group_lines(found: Sequence[Finding], columns: int) -> Iterator[str]:
    first = max(len(one.name) for one in found) + 2
    room = columns - MARK - first
    for one in found:
        status = one.status.value
        mark = style_text(f"{status:<{MARK}}", COLOURS[status], bold=status == "fail")
        head, *rest = wrap(printable(one.evidence), room, break_long_words=False, break_on_hyphens=False)
        yield f"{mark}{one.name:<{first}}{head}"
        yield from (" " * (MARK + first) + row for row in rest)
        if one.fix:  # never broken: it is there to be copied
            yield " " * MARK + style_text(f"fix: {one.fix}", bold=True)


def probe_box() -> Probe:
    from sparkdash import settings
    from sparkdash.doctor import Probe
    from sparkdash.log import LOG

    LOG.least = "error"  # what NVML keeps from us is a finding, not a line in the log
    try:
        known, problem = settings.load_settings(), None
    except ProfileError as error:
        known, problem = settings.Settings(), error.text()
    return Probe(settings=known, settings_problem=problem, daemon=seen_daemon())


def seen_daemon() -> DaemonSeen:
    from sparkdash.client.client import Client
    from sparkdash.doctor.check import DaemonSeen

    try:
        with Client() as client:
            address = str(client.address)
            world = client.state()
    except SparkdashError as error:
        return DaemonSeen("", problem=error.message)
    except OSError as error:  # a folder that is closed to this user must not end the one command that would tell
        return DaemonSeen("", problem=f"The search for the daemon failed: {error}.")
    info, low_power = world.daemon, world.sample is not None and world.sample.low_power
    return DaemonSeen(address, info.version, info.pid, info.url, info.runtime, low_power)
