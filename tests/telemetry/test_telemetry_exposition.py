"""The parser of text expositions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.telemetry.exposition import ExpositionReader, ParsedSample, parse_exposition

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True).filter(
    lambda name: not name.endswith("_created")
)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20),
    max_size=4,
)
SAMPLES = st.lists(st.tuples(NAMES, LABELS, st.floats()), max_size=20)


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def line(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value!r}" if labels else f"{name} {value!r}"


@given(SAMPLES)
def test_exposition_round_trip(samples: list[tuple[str, dict[str, str], float]]) -> None:
    scrape = parse_exposition("\n".join(line(*sample) for sample in samples))
    seen = [(name, labels, repr(value)) for name, found in scrape.samples.items() for labels, value in found]
    assert sorted(seen, key=str) == sorted(((n, ls, repr(v)) for n, ls, v in samples), key=str)


@given(st.one_of(st.text(), st.text(alphabet='a{}="\\,# \n1.eE+-NanIf_\t')))
def test_exposition_never_raises(text: str) -> None:
    scrape = parse_exposition(text)
    totals = [scrape.total(name) for name in scrape.samples]
    assert all(total is None or math.isfinite(total) for total in totals)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x 1", 1.0),
        ("x\t1 1699999999999", 1.0),
        ("  x 1  \r", 1.0),
        ('x {a="b"} 1', 1.0),
        ('x{a="b",} 1.2e+07', 1.2e7),
        ("x{} 3", 3.0),
        ('x_bucket{le="0.1"} 3', None),
        ('x{le="0.1"} 3 # {trace_id="7"} 0.05 1699999999.1', 3.0),
        ("x +Inf", None),
        ("x NaN", None),
        ("x 1_000", None),
        ("x twelve", None),
        ("x", None),
        ('x{a="b" 1', None),
        ('x{a="b"', None),
        ("x 1 2 3", None),
        ("x_created 1", None),
        ("# x 1", None),
        ('{"x": 1}', None),
        ("[]", None),
    ],
)
def test_exposition_line(text: str, value: float | None) -> None:
    assert parse_exposition(text).total("x") == value


def test_exposition_keeps_infinity_and_nan_apart() -> None:
    scrape = parse_exposition("x +Inf\nx -Inf\nx NaN\nx 4")
    assert [repr(sample.value) for sample in scrape.samples["x"]] == ["inf", "-inf", "nan", "4.0"]
    assert scrape.total("x") == 4.0
    assert scrape.mean("x") == 4.0


def test_exposition_unescapes_labels() -> None:
    scrape = parse_exposition(r'x{path="C:\\dir",say="\"}, {\"",two="a\nb"} 1')
    assert scrape.samples["x"] == (ParsedSample({"path": "C:\\dir", "say": '"}, {"', "two": "a\nb"}, 1.0),)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("x 1\ny 2\nz 3", {"x", "z"}), ("x 1\n# EOF\nz 2", {"x"}), ("x_created 1.7e9", set())],
)
def test_exposition_keeps_wanted_names_before_the_end_and_no_creations(text: str, kept: set[str]) -> None:
    assert parse_exposition(text, {"x", "z", "x_created"}).samples.keys() == kept


def test_exposition_sums_over_labels() -> None:
    scrape = parse_exposition(
        'x{engine="0",position="0"} 1\nx{engine="1",position="0"} 3\nx{engine="0",position="1"} 5'
    )
    assert scrape.total("x") == 9.0
    assert scrape.mean("x") == 3.0
    assert scrape.by("x", "position") == {"0": 4.0, "1": 5.0}


def test_exposition_picks_label_values() -> None:
    """A label filter sums the children asked for, 0 for one that is not there yet, and all of a series without that label."""
    scrape = parse_exposition('x{mode="a"} 1\nx{mode="b"} 2\ny{other="a"} 7')
    assert scrape.total("x", "mode", ("a",)) == 1.0
    assert scrape.total("x", "mode", ("a", "b")) == 3.0
    assert scrape.total("x", "mode", ("c",)) == 0.0
    assert scrape.total("y", "mode", ("a",)) == 7.0
    assert scrape.total("z", "mode", ("a",)) is None


def test_exposition_of_a_broken_answer() -> None:
    scrape = parse_exposition(
        '<html>502 Bad Gateway</html>\nx_total{engine="0" 12\ny{le="0.1"} 3\ny{le="0.25"} -1\nz_tot'
    )
    assert scrape.samples == {"y": (ParsedSample({"le": "0.1"}, 3.0), ParsedSample({"le": "0.25"}, -1.0))}


def test_the_same_page_again_is_the_same_scrape() -> None:
    reader = ExpositionReader({"a", "b"})
    first = reader.read('a{x="1"} 1\nb 2\nprocess_cpu_seconds_total 3\n')
    assert reader.read('a{x="1"} 1\nb 2\nprocess_cpu_seconds_total 4\n') is first


LINES = st.lists(
    st.sampled_from(["a 1", "a 2", 'a{x="1"} 1', "b 2", "c 3", "# EOF", "# HELP a", "{", "[1]", "", " b 2"])
)


@given(st.lists(LINES, min_size=2, max_size=5))
def test_page_after_page_is_read_as_if_each_were_the_first(pages: list[list[str]]) -> None:
    reader = ExpositionReader({"a", "b"})
    for page in pages:
        assert reader.read("\n".join(page)) == parse_exposition("\n".join(page), {"a", "b"})
