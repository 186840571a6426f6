"""Texts about a profile's file: findings of a check, the command of a dry run, progress of a download.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkdash.tui.ink import EMPTY, Ink, Line, inked, wrap
from sparkdash.units import duration, percent, size


def errors_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the findings that keep a file from being taken."""
    return [one for one in found.get("findings", ()) if one["level"] == "error"]


def warnings_of(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the findings that a file may have."""
    return [one for one in found.get("findings", ()) if one["level"] != "error"]


def finding_lines(found: Mapping[str, Any], draft: str, name: str, width: int) -> list[Line]:
    """Format findings, errors first: place, message, hint. `draft` is shown as `name`."""
    lines: list[Line] = []
    for one in (*errors_of(found), *warnings_of(found)):
        bad = one["level"] == "error"
        place = f"{one['file']}:{one['line']}".replace(draft, name)
        key = f"{one['key']}: " if one["key"] else ""
        lines += wrap(f"{'✗' if bad else '⚠'} {place}: {key}{one['message']}", width, Ink.BAD if bad else Ink.WARN)
        lines += [inked("  ") + row for row in wrap(one["hint"] or "", width - 2)]
    return lines


def command_lines(told: Mapping[str, Any], width: int) -> list[Line]:
    """Format the command of a dry run, one option a row, each node's under its name."""
    lines = wrap(f"It cannot run as published: {told['cannot_run']}.", width, Ink.WARN) if told["cannot_run"] else []
    nodes = told.get("nodes") or [{"node": "", "argv": told["argv"]}]
    for one in nodes:
        if one["node"]:
            lines += [EMPTY, inked(f"on {one['node']}", Ink.STRONG)]
        for number, row in enumerate(_rows(one["argv"])):
            lines += [inked("  " if number else "") + line for line in wrap(row, width - 2)]
    return lines


def _rows(argv: list[str]) -> list[str]:
    """Join each option with its value."""
    rows: list[str] = []
    for word in argv:
        takes = rows and rows[-1].startswith("-") and " " not in rows[-1] and "=" not in rows[-1]
        if rows and not word.startswith("-") and (takes or len(rows) == 1):
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def copy_question(name: str, own: Path, width: int) -> list[Line]:
    """Ask before a shipped profile is copied into the owner's folder."""
    text = f"{name} ships with sparkdash; its file is replaced by the next version. A copy in {own} wins over it."
    return wrap(text, width)


def weights_text(told: Mapping[str, Any]) -> str:
    """Format one step of a download: "weights 43 %, 26 of 61 GiB, 98 MiB/s, 6m02s left"."""
    came, total = told["came_bytes"], told["total_bytes"]
    parts = [f"weights {percent(came / total if total else 1.0)}", f"{size(came)} of {size(total)}"]
    if told.get("bytes_per_s"):
        parts.append(f"{size(int(told['bytes_per_s']))}/s")
    if told.get("eta_s") is not None:
        parts.append(f"{duration(told['eta_s'])} left")
    return ", ".join(parts)
