"""The shape of the source tree: no circles, no I/O where a module calls itself pure, folders and names that one can take in."""

from __future__ import annotations

from pathlib import Path

import house
import pytest


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    for name, text in {
        "__init__": "",
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B\n",
        "b": "from p import c\n",
        "c": "import p.a\n",
        "d": "from p import a\n",
    }.items():
        (tmp_path / "p" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "p" / f"{name}.py").write_text(text)
    assert house.circles(house.imports(house.read_tree(tmp_path / "p"))) == [["p.a", "p.b", "p.c"]]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import time", "time"),
        ("from asyncio import sleep", "asyncio"),
        ("import urllib.request", "urllib.request"),
        ("def wait() -> None:\n    import socket", "socket"),
    ],
)
def test_a_planted_import_of_io_is_refused(line: str, found: str) -> None:
    planted = house.Module("breaker", f'"""Breaker: counts failures.\n\nPure.\n"""\n\n{line}\n')
    assert house.impurities({"breaker": planted}) == [f"breaker imports {found}"]


def test_types_of_io_may_be_named_by_a_pure_module() -> None:
    text = '"""Pure."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio\n'
    assert house.Module("m", text).is_pure
    assert house.impurities({"m": house.Module("m", text)}) == []
