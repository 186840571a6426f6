"""The flag table of llama.cpp against the `--help` of a real llama-server; no model is loaded."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.flag_check import flag_complaints
from sparkdash.engines.registry import adapter

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def program(llama: Path) -> Path:
    return llama / "bin/llama-server"


def listed(text: str) -> set[str]:
    """The flags that a help text defines: at the beginning of a line, without values, and not marked as removed."""
    found = set()
    for line, below in zip(text.splitlines(), [*text.splitlines()[1:], ""], strict=True):
        if re.match(r" {0,8}--?[A-Za-z]", line):
            defined, _, about = re.sub(r"([,/]) +", r"\1 ", line.strip()).partition("  ")
            if "argument has been removed" not in (about or below):
                found |= set(
                    re.findall(r"(?<![\w.-])--?[A-Za-z][\w.-]*", re.sub(r"\{[^}]*\}|<[^>]*>|\[[^\]]*\]", "", defined))
                )
    return found


def test_the_table_has_the_very_flags_that_the_help_lists(program: Path) -> None:
    """Each spelling, and none beyond them; the newest tree of the table is this program's source."""
    source = adapter(EngineKind.LLAMACPP).flag_source
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    assert source is not None
    table = source.table
    newest = len(table.versions) - 1
    spellings = {
        table.normal(word)
        for flag in table.flags
        if newest in flag.present
        for word, places in flag.spellings.items()
        if newest in places
    }
    assert spellings == {table.normal(flag) for flag in listed(told)}


@pytest.mark.parametrize(
    "words", [["--ctx-sise", "1"], ["--ctx-size", "many"], ["--ngl", "1"], ["--draft-max", "4"], ["--jinja=1"]]
)
def test_what_the_table_refuses_the_program_refuses(program: Path, words: list[str]) -> None:
    done = subprocess.run([program, *words, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    key, _, value = " ".join(words).lstrip("-").replace("=", " ").partition(" ")
    profile = Profile.model_validate(
        {"name": "x", "engine": "llamacpp", "engine_version": "v0.5.0-dev", "args": {key: value}}
    )
    assert [one.certain for one in flag_complaints(profile)] == [True]
