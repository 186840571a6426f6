"""Suites as files: what is shipped, what an owner writes, and what is said of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.bench.plan import suites
from sparkdash.bench.run import Kind, Mode
from sparkdash.errors import AdmissionError, ProfileError

GOOD = """\
suite: mine
version: 1
about: words
cells:
  - {context: [0, 512], output: 32}
"""


def write(text: str, folder: Path, name: str = "mine.yaml") -> Path:
    place = folder / "config" / "suites"
    place.mkdir(exist_ok=True)
    (place / name).write_text(text)
    return place / name


def test_every_shipped_suite_loads_and_is_named_as_its_file() -> None:
    expected = {
        "smoke",
        "seeds",
        "concurrency",
        "prefill",
        "localmaxxing",
        "arena",
        "prefix",
        "math",
        "classes",
        "paired",
        "batch",
        "load",
        "users",
    }
    assert {suites.load_suite(name).suite for name in suites.suite_files()} == expected == set(suites.suite_files())


def test_seeds_has_the_published_matrix_and_a_warm_column() -> None:
    cells = suites.load_suite("seeds").planned(Mode.STANDARD)
    cold = {(cell.key.context, cell.key.output) for cell in cells if not cell.key.warm}
    assert cold == {(context, output) for context in (0, 512, 2048, 8192, 16384) for output in (32, 150, 400)}
    assert {cell.reps for cell in cells if not cell.key.warm} == {5}
    assert {cell.key.output for cell in cells if cell.key.warm} == {150}


def test_a_suite_of_the_owners_wins_and_its_hash_is_of_its_meaning(own_folders: Path) -> None:
    write(GOOD, own_folders, "smoke.yaml")
    assert suites.load_suite("smoke").suite == "mine"
    first = suites.read_suite(write(GOOD, own_folders)).hash
    again = "# a remark\nabout: other words\nversion: '1'\nsuite: mine\ncells: [{output: [32], context: [0, 512]}]\n"
    assert suites.read_suite(write(again, own_folders)).hash == first
    assert suites.read_suite(write(GOOD.replace("32", "33"), own_folders)).hash != first


def test_reps_are_the_suites_own_else_what_was_asked_else_the_modes() -> None:
    assert {cell.reps for cell in suites.load_suite("prefill").planned(Mode.SCREEN, reps=2)} == {30}
    assert {cell.reps for cell in suites.load_suite("smoke").planned(Mode.CAREFUL, reps=7)} == {2}
    assert {cell.reps for cell in suites.load_suite("concurrency").planned(Mode.SCREEN)} == {3}
    assert [cell.key.kind for cell in suites.load_suite("math").planned(Mode.SCREEN)] == [Kind.MATH]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (GOOD.replace("output", "ouput"), ":5", "Did you mean 'output'?"),
        (GOOD.replace("[0, 512]", "[0, 51]"), ":5", "at least 128"),
        (GOOD.replace("output: 32", "output: 0"), ":5", "at least 1"),
        (GOOD.replace("output: 32", "output: 32, text: poem"), ":5", "prose, code, json, chat"),
        (GOOD.replace("output: 32", "output: [32, 32]"), ":4", "listed twice"),
        (GOOD.replace("about: words\n", ""), ":1", "'about' is missing"),
        (GOOD.replace("cells", "lengths: {brief: 33}\ncells"), ":4", "no cell has an output of 33 tokens"),
        (GOOD.replace("cells", "lengths: {a: 32, b: 32}\ncells"), ":4", "32 tokens are called 'a' already"),
        ("suite: mine\n  cells: []\n", ":2", "not valid YAML"),
        (GOOD.replace("suite: mine", "suite: My Suite"), ":1", "pattern"),
    ],
)
def test_a_mistake_is_told_with_its_line(own_folders: Path, text: str, where: str, what: str) -> None:
    file = write(text, own_folders)
    with pytest.raises(ProfileError) as wrong:
        suites.read_suite(file)
    assert f"{file}{where}" in wrong.value.message
    assert what in wrong.value.message


def test_an_unknown_suite_names_the_nearest() -> None:
    with pytest.raises(AdmissionError, match="no suite 'seed'") as unknown:
        suites.load_suite("seed")
    assert unknown.value.hint == "Did you mean seeds?"
    with pytest.raises(ProfileError, match="cannot be read"):
        suites.load_suite("./nowhere.yaml")
