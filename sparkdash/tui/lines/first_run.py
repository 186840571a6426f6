"""Lines of a box where nothing runs: what can be done first, one key each. Pure."""

from typing import NamedTuple

from sparkdash.domain.node import Status
from sparkdash.domain.state import Snapshot
from sparkdash.tui.first_run import IdleBox, RunningServer, fitting, on_disk
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, Line, Style, clip, key_hint, pad, styled, wrap
from sparkdash.units import counted, gib

DEMO = "shows all of this on a simulated box"
KEY_COLUMN, NARROW = 20, 66
"""Cells before the key, and the width below which the steps are numbers alone."""


class Offer(NamedTuple):
    """Row with its step, its key and what the key does."""

    step: str
    key: str
    words: str


def first_run_rows(view: View, width: int) -> list[Line]:
    """Format the offers, at most six rows of `width` cells."""
    snapshot, idle = view.snapshot, view.idle
    if snapshot is None:
        return []
    offers = [Offer("1 no engine runs.", "p", _profiles_words(snapshot, idle))]
    if idle.server is not None:
        offers.append(Offer("", "a", server_words(idle.server)))
    offers.append(Offer("2 point a client.", "c", _client_words(idle, snapshot.daemon.url)))
    if idle.can_run_commands:
        offers.append(Offer("3 nothing at hand?", "d", DEMO))
        offers.append(Offer("", "i", _setup_words(idle)))
    return [*(_laid(one, width) for one in offers), clip(_doctor_row(idle, width), width)]


def no_profile_rows(view: View, width: int) -> list[Line]:
    rows = [styled("No profiles yet, so there is nothing to run.")]
    told = "→ `sparkdash setup` finds the models on this box. Or put a YAML file into ~/.config/sparkdash/profiles,"
    rows += wrap(f"{told} then press r.", width, Style.STRONG)
    offers = [("a", server_words(view.idle.server))] if view.idle.server else []
    if view.idle.can_run_commands:
        offers += [("i", _setup_words(view.idle)), ("d", DEMO)]
    rows += [clip(key_hint(key, f" {words}"), width) for key, words in offers]
    for problem in view.snapshot.problems[:2] if view.snapshot else ():
        rows += wrap(f"✗ {problem}", width, Style.BAD, limit=2)
    return rows


def server_words(server: RunningServer) -> str:
    """Say which server runs already and what the key does with it."""
    first, *more = server.profiles
    others = f" and {len(more)} more" if more else ""
    place = f"port {server.url.rpartition(':')[2]}"
    if server.attached:
        return f"uses {first} of {server.kind}, {place}"
    return f"attaches {server.kind}, {place}: {first}{others}"


def _laid(offer: Offer, width: int, style: Style = Style.PLAIN) -> Line:
    column = KEY_COLUMN if width >= NARROW else 2
    step = pad(clip(styled(offer.step if width >= NARROW else offer.step[:1], style), column), column)
    return clip(step + pad(styled(offer.key, Style.STRONG), 3) + styled(offer.words, style), width)


def _profiles_words(snapshot: Snapshot, idle: IdleBox) -> str:
    found = fitting(snapshot)
    memory = snapshot.sample.memory if snapshot.sample else None
    if found is None or memory is None:
        return "profiles, each with the memory that it needs"
    here = len(on_disk(found, idle.stock))
    held = f", {here} already on disk" if here else ""
    return f"profiles that fit {gib(memory.total)} ({len(found)}{held})"


def _client_words(idle: IdleBox, url: str) -> str:
    clients = idle.found.clients if idle.found else ()
    if not clients:
        return f"copies {url}"
    others = ", ".join(clients[1:])
    return f"copies the recipe of {clients[0]}" + (f"; again: {others}" if others else "")


def _setup_words(idle: IdleBox) -> str:
    if idle.found is not None and idle.found.configuration:
        return f"goes through all steps, and imports {idle.found.configuration}"
    return "goes through all steps, from a model to a first token"


def _doctor_row(idle: IdleBox, width: int) -> Line:
    faults, remarks = idle.count(Status.FAIL), idle.count(Status.WARN)
    if idle.looking:
        return styled("  looking for servers, clients and faults on this box …", Style.DIM)
    if not faults and not remarks:
        return EMPTY
    told = [counted(faults, "fault")] if faults else []
    told += [counted(remarks, "remark")] if remarks else []
    style = Style.BAD if faults else Style.WARN
    return _laid(Offer("! this box", "D", f"doctor: {' and '.join(told)}"), width, style)
