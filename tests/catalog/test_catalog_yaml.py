"""YAML 1.2 on a parser of 1.1: what a plain word means, where things stand, and that nothing can hang or crash it."""

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.catalog import yaml12
from sparkdash.catalog.yaml12 import NotYaml


def value(text: str) -> Any:
    return yaml12.read_yaml(text)[0]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("y", "y"), ("off", "off"),
        ("true", True), ("FALSE", False), ("~", None), ("", None), ("null", None),
        ("010", 10), ("0o17", 15), ("0x1F", 31), ("-7", -7), ("+3", 3), ("0b11", "0b11"), ("1_000", "1_000"),
        ("12:30", "12:30"), ("1:2:3", "1:2:3"), ("2026-11-21", "2026-11-21"), ("0.16.0", "0.16.0"),
        ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-1.5E-2", -0.015), (".inf", math.inf), ("-.INF", -math.inf),
        ("=", "="), ("'1'", "1"), ("!!str 12", "12"), ("!!int '12'", 12), ("! 12", "12"),
    ],
)  # fmt: skip
def test_a_plain_word_means_what_yaml_1_2_says(word: str, meant: Any) -> None:
    found = value(f"a: {word}")["a"]
    assert (type(found), found) == (type(meant), meant)


def test_not_a_number_is_one_kind_of_float() -> None:
    """NaN equals nothing, not even itself."""
    assert math.isnan(value("a: .nan")["a"])


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a: [", (2, 1), "did not find expected node content"),
        ("a: 1\nb: c: d", (2, 5), "mapping values are not allowed"),
        ("a: 1\nb: 2\na: 3", (3, 1), "a key that is given twice"),
        ("x: {a: 1, a: 2}", (1, 11), "a key that is given twice"),
        ("a: 1\n---\nb: 2", (2, 1), "a second document begins here"),
        ("? [a]\n: 1", (1, 3), "a key that is no word"),
        ("a: *b", (1, 4), "there is no anchor &b above"),
        ("a: &b [*b]", (1, 8), "&b contains itself"),
        ("a: !!python/object:os.system x", (1, 4), "the tag !!python/object:os.system is not known"),
        ("a: !!set {b}", (1, 4), "the tag !!set is not known"),
        ("a: !!int lots", (1, 4), "'lots' is no int"),
        ("<<: 3", (1, 5), "<< takes a mapping"),
        ("é: 1\na: \x07", (2, 4), "the character U+0007 is not allowed"),
        (f"a: {'9' * 5000}", (1, 4), "is no int"),
        (f"a: {'[' * 5000}", (1, 34), "nested deeper than 30"),
        (f"a: {'[' * 90_000}{']' * 90_000}", (1, 34), "nested deeper than 30"),
        (f"a: &a {'[' * 20}{']' * 20}\nb: {'[' * 20}*a{']' * 20}", (2, 24), "nested deeper than 30"),
        (f"a: &a [{'1,' * 9_000}]\nb: [*a, *a]", (2, 9), "with its aliases written out, it has more than 20000 values"),
        (f"a: &a {'x' * 900_000}\nb: [*a, *a]", (2, 9), "with its aliases written out, it has more than 20000 values"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text: str, place: tuple[int, int], reason: str) -> None:
    """Line and column from 1; nesting that would end the process in libyaml's own composer is only refused."""
    with pytest.raises(NotYaml) as caught:
        yaml12.read_yaml(text)
    assert (caught.value.line, caught.value.column) == place
    assert reason in str(caught.value)


def test_marks_tell_where_keys_and_items_stand() -> None:
    """Also of what an alias or a merge brings: its own place, where it can be fixed."""
    _, mark = yaml12.read_yaml("base: &b {x: 1}\nlist:\n  - one\n  - two: 2\nmore:\n  <<: *b\n  y: 2\n")
    places = {
        path: (found.line, found.column)
        for path, found in {
            "base": mark.inner["base"],
            "list.1": mark.inner["list"].inner[1],
            "list.1.two": mark.inner["list"].inner[1].inner["two"],
            "more.x": mark.inner["more"].inner["x"],
            "more.y": mark.inner["more"].inner["y"],
        }.items()
    }
    assert places == {"base": (1, 1), "list.1": (4, 5), "list.1.two": (4, 5), "more.x": (1, 11), "more.y": (7, 3)}


def test_merged_keys_give_way_to_a_mapping_s_own() -> None:
    """And of several mappings the first wins."""
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\n"
    assert value(text)["c"] == {"x": 3, "y": 1, "z": 2}
    assert value("a: {'<<': 1}") == {"a": {"<<": 1}}


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.just("\n"), max_size=30)
words = st.sampled_from(
    ["no", "on", "~", "12:30", "0o17", "017", "1e3", "1_000", "2026-11-21", "<<", "=", "- a", "{a", "#", ""]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts | words, values, max_size=4))
def test_what_is_written_is_read_back(data: dict[str, Any]) -> None:
    """By our own reader, and by one of YAML 1.1, as other tools have."""
    text = yaml12.dump(data)
    assert value(text) == data
    assert yaml.safe_load(text) == data
