"""Lines of a box where nothing runs: what can be done first, one key each. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparkdash.domain.node import Status
from sparkdash.domain.state import Snapshot
from sparkdash.tui.first_run import IdleBox, fitting, on_disk
from sparkdash.tui.mirror import View
from sparkdash.tui.text import EMPTY, Line, Style, clip, key_hint, pad, styled, wrap
from sparkdash.units import counted, gib

DEMO = "shows all of this on a simulated box"
SETUP = "goes through all steps, from what this box has to a first token"
KEY_COLUMN, NARROW = 20, 66
"""Cells before the key, and the width below which the steps are numbers alone."""


class Offer(NamedTuple):
    """Row with its step, its key and what the key does."""

    step: str
    key: str
    words: str


def first_run_rows(view: View, width: int) -> list[Line]:
    """Format the offers, at most five rows of `width` cells."""
    snapshot, idle = view.snapshot, view.idle
    if snapshot is None:
        return []
    offers = [Offer("1 no engine runs.", "p", _profiles_words(snapshot, idle))]
    offers.append(Offer("2 point a client.", "c", _client_words(idle, snapshot.daemon.url)))
    if idle.can_run_commands:
        offers.append(Offer("3 nothing at hand?", "d", DEMO))
        offers.append(Offer("", "i", SETUP))
    return [*(_laid(one, width) for one in offers), clip(_doctor_row(idle, width), width)]


def no_profile_rows(view: View, width: int) -> list[Line]:
    rows = [styled("No profiles yet, so there is nothing to run.")]
    told = "→ `sparkdash setup` finds the models on this box. Or put a YAML file into ~/.config/sparkdash/profiles,"
    rows += wrap(f"{told} then press r.", width, Style.STRONG)
    offers = (("i", SETUP), ("d", DEMO)) if view.idle.can_run_commands else ()
    rows += [clip(key_hint(key, f" {words}"), width) for key, words in offers]
    for problem in view.snapshot.problems[:2] if view.snapshot else ():
        rows += wrap(f"✗ {problem}", width, Style.BAD, limit=2)
    return rows


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
    if not idle.clients:
        return f"copies {url}"
    others = ", ".join(idle.clients[1:])
    return f"copies the recipe of {idle.clients[0]}" + (f"; again: {others}" if others else "")


def _doctor_row(idle: IdleBox, width: int) -> Line:
    faults, remarks = idle.count(Status.FAIL), idle.count(Status.WARN)
    if idle.looking:
        return styled("  looking for clients and faults on this box …", Style.DIM)
    if not faults and not remarks:
        return EMPTY
    told = [counted(faults, "fault")] if faults else []
    told += [counted(remarks, "remark")] if remarks else []
    style = Style.BAD if faults else Style.WARN
    return _laid(Offer("! this box", "D", f"doctor: {' and '.join(told)}"), width, style)
