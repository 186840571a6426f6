"""What engines print: text expositions, and llama.cpp's live figures out of /slots."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.metric import Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.telemetry.derive import EngineHistory
from sparkdash.telemetry.exposition import ExpositionReader, parse_exposition
from sparkdash.telemetry.reading import Counters, Gauges, Reading, Slot, Slots, SlotTally, parse_slots

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


@pytest.mark.parametrize(("text", "value"), [
    ("x 1", 1.0), ("x\t1 1699999999999", 1.0), ("  x 1  \r", 1.0), ('x {a="b"} 1', 1.0), ('x{a="b",} 1.2e+07', 1.2e7),
    ("x{} 3", 3.0), ('x_bucket{le="0.1"} 3', None), ('x{le="0.1"} 3 # {trace_id="7"} 0.05 1699999999.1', 3.0),
    ("x +Inf", None), ("x NaN", None), ("x 1_000", None), ("x twelve", None), ("x", None), ('x{a="b" 1', None),
    ('x{a="b"', None), ("x 1 2 3", None), ("x_created 1", None), ("# x 1", None), ('{"x": 1}', None), ("[]", None),
])  # fmt: skip
def test_exposition_line(text: str, value: float | None) -> None:
    assert parse_exposition(text).total("x") == value


def test_exposition_keeps_infinity_and_nan_apart() -> None:
    scrape = parse_exposition("x +Inf\nx -Inf\nx NaN\nx 4")
    assert [repr(sample.value) for sample in scrape.samples["x"]] == ["inf", "-inf", "nan", "4.0"]
    assert scrape.total("x") == 4.0
    assert scrape.mean("x") == 4.0


@pytest.mark.parametrize(
    ("text", "kept"), [("x 1\ny 2\nz 3", {"x", "z"}), ("x 1\n# EOF\nz 2", {"x"}), ("x_created 1.7e9", set())]
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
    scrape = parse_exposition('x{mode="a"} 1\nx{mode="b"} 2\ny{other="a"} 7')
    assert scrape.total("x", "mode", ("a",)) == 1.0
    assert scrape.total("x", "mode", ("a", "b")) == 3.0
    assert scrape.total("x", "mode", ("c",)) == 0.0
    assert scrape.total("y", "mode", ("a",)) == 7.0
    assert scrape.total("z", "mode", ("a",)) is None


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["n_ctx", "is_processing", "id_task", "next_token", "n_decoded", "n_prompt_tokens"]), inner
        )
    ),
    max_leaves=12,
)


def row(task: int, *, held: int = 0, prefilled: int = 0, decoded: int = 0, busy: bool = True) -> dict[str, Any]:
    prompt = {"n_prompt_tokens": held, "n_prompt_tokens_processed": prefilled}
    return {
        "id": 0,
        "n_ctx": 8192,
        "is_processing": busy,
        "id_task": task,
        "next_token": [{"n_decoded": decoded}],
        **prompt,
    }


def slots(*rows: dict[str, Any]) -> Slots:
    return parse_slots(json.dumps(rows))


def test_slots_of_a_real_load_and_of_an_idle_server(recorded: Callable[[str], Any]) -> None:
    found = slots(*recorded("real-llama.cpp-0c1e57098-live-midload-slots.json"))
    assert [slot.decoded for slot in found.busy.values()] == [596, 1213, 1277, 435]
    assert found.capacity == 4 * 4096
    assert found.kv_used == pytest.approx((628 + 1241 + 1304 + 458) / 16384)
    assert "assistant" not in repr(found)
    idle = slots(*recorded("real-llama.cpp-0c1e57098-draft-slots.json"))
    assert (idle, idle.kv_used) == (Slots({}, 4 * 4096), 0.0)


@pytest.mark.parametrize("body", ["", "{}", "[1]", "null", b"\xff", '{"error": {"code": 501}}', "[" * 100_000])
def test_slots_of_something_else(body: str | bytes) -> None:
    assert parse_slots(body) is None


@given(JSON)
def test_slots_never_raise(value: Any) -> None:
    found = parse_slots(json.dumps(value))
    tally = SlotTally()
    for look in (found, found):
        if look is not None:
            tally.add(look, None, None)
    assert tally.decoded >= 0


def test_slots_of_older_builds() -> None:
    """In 2025 next_token was an object and the prompt counts were missing: what is missing is unknown."""
    found = slots({"n_ctx": 100, "is_processing": True, "id_task": 3, "next_token": {"n_decoded": 9}, "prompt": "x"})
    assert found.busy == {3: Slot(task=3, held=None, prefilled=None, decoded=9)}
    assert found.kv_used is None


TALLIES: dict[str, tuple[list[tuple[Slots, int | None, int | None]], list[tuple[int, int]]]] = {
    "by task": ([
        (slots(row(1, decoded=100, prefilled=50)), None, None), (slots(row(1, decoded=140, prefilled=50)), None, None),
        (slots(row(2, decoded=7, prefilled=200)), None, None),
    ], [(0, 0), (40, 0), (47, 200)]),
    "a task that was never seen": ([
        (slots(), 1000, 500), (slots(row(1, decoded=40, prefilled=100)), 1000, 600), (slots(row(1, busy=False)), 1085, 630),
    ], [(85, 130)]),
    "a task that ends between the two answers": ([
        (slots(row(1)), 0, 0), (slots(row(1, decoded=50)), 0, 0), (slots(), 0, 0), (slots(), 60, 0),
    ], [(60, 0)]),
    "an aborted task": ([
        (slots(row(1)), 0, 0), (slots(row(1, decoded=500)), 0, 0), (slots(), 0, 0), (slots(), 0, 0), (slots(), 30, 0),
    ], [(530, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("case", TALLIES)
def test_slots_tally(case: str) -> None:
    looks, expected = TALLIES[case]
    tally, seen = SlotTally(), []
    for look in looks:
        tally.add(*look)
        seen.append((tally.decoded, tally.prefilled))
    assert seen[-len(expected) :] == expected


def timeline(recorded: Callable[[str], Any]) -> list[tuple[float, dict[str, str], Slots]]:
    looks = recorded("real-llama.cpp-0c1e57098-prefill-timeline.json")["timeline"]
    return [(look["t"], look["metrics"], slots(*(real_shape(slot) for slot in look["slots"]))) for look in looks]


def real_shape(flat: dict[str, Any]) -> dict[str, Any]:
    following = [{"n_decoded": flat["n_decoded"]}] if flat["n_decoded"] is not None else []
    return {**{key: count for key, count in flat.items() if count is not None}, "n_ctx": 4096, "next_token": following}


def test_slots_prefill_timeline(recorded: Callable[[str], Any], reading: Callable[..., Reading]) -> None:
    """Through a real 2000-token prompt and its 40 tokens: prefill moves batch by batch, then decode, while no counter does."""
    history = EngineHistory()
    rates = []
    for at, metrics, live in timeline(recorded):
        text = "\n".join(f"{name} {count}" for name, count in metrics.items())
        history.add(reading(EngineKind.LLAMACPP, text, at), live)
        values = history.derive().values
        rates.append((at, values[Metric.PREFILL], values[Metric.DECODE]))
    batches = [(at, prefill, decode) for at, prefill, decode in rates if 80 < at < 245]
    assert [prefill for _, prefill, _ in batches] == pytest.approx([512 / 57.413, 512 / 47.157, 512 / 48.741])
    assert {decode for *_, decode in batches} == {0.0}
    assert rates[-1][2] == pytest.approx(8, abs=1)
    assert rates[-1][1] == 0.0
    assert values[Metric.KV_USED] == pytest.approx(2039 / 8192)
    assert values[Metric.KV_CAPACITY] == 8192


def test_slots_timeline_adds_up(recorded: Callable[[str], Any]) -> None:
    tally = SlotTally()
    for _, metrics, live in timeline(recorded):
        counters = [float(metrics[f"llamacpp:{name}"]) for name in ("tokens_predicted_total", "prompt_tokens_total")]
        tally.add(live, *counters)
    assert (tally.decoded, tally.prefilled) == (39, 2000)


def test_slots_that_come_or_go_start_history_over() -> None:
    looks = [Reading(float(at), Counters(generated=100.0), Gauges(running=1.0), {}, {}) for at in range(4)]
    history = EngineHistory()
    history.add(looks[0], slots(row(1, decoded=0)))
    history.add(looks[1], slots(row(1, decoded=40)))
    assert history.derive().values[Metric.DECODE] == 40.0
    history.add(looks[2], None)
    assert history.derive().values[Metric.DECODE] is None
    history.add(looks[3], None)
    assert history.derive().values[Metric.DECODE] == 0.0
