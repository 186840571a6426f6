"""Requests added up by hour: exact counts, and quantiles within 1 %."""

import math
import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest
from recorded import START, asked
from stored import rows

from sparkdash.api.requests import UsageQuery
from sparkdash.domain.history import Quantiles, UsageReport, UsageTotals
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.sketch import LogSketch, SketchSum, merge_packed
from sparkdash.store import Store, schema, usage
from sparkdash.store.usage import GROUPS, OTHER, sums_of, wait_of

HOUR, DAY = 3600, 86400


def traffic(number: int, seconds: int) -> list[Request]:
    """Requests of two profiles and three clients at random times, with an error and a client that leaves now and then."""
    chance = random.Random(7)
    made = []
    for n in range(number):
        at = START + chance.random() * seconds
        profile, client = chance.choice(("alpha", "beta/fast")), chance.choice(("codex", "aider", "curl"))
        ended = (RequestState.FAILED, RequestState.GONE)[n % 2] if n % 20 == 0 else RequestState.DONE
        rest = {
            "key": chance.choice((None, "ann", "bob")), "state": ended, "granted_at": at + chance.choice((0.0, 0.0, 12.5)),
            "finished_at": at + 60, "prompt_tokens": chance.randrange(5000), "cached_tokens": chance.randrange(100),
            "completion_tokens": chance.randrange(900), "reasoning_tokens": chance.randrange(50),
            "ttft_s": chance.lognormvariate(0, 1), "decode_tok_s": chance.lognormvariate(4, 0.4),
            "energy_wh": chance.choice((None, 0.25)),
        }  # fmt: skip
        made.append(asked(n, at, profile=profile, client=client, **rest))
    return made


def quantile(values: Sequence[float], share: float) -> float:
    """The value at that place of the sorted ones."""
    return sorted(values)[math.floor(share * (len(values) - 1))]


def within_a_hundredth(told: Quantiles, values: Sequence[float]) -> None:
    assert told.count == len(values)
    if values:
        for share, value in ((0.5, told.p50), (0.9, told.p90), (0.95, told.p95), (0.99, told.p99)):
            assert value == pytest.approx(quantile(values, share), rel=0.0101)


def same(told: UsageTotals, those: Sequence[Request]) -> None:
    assert told.requests == len(those)
    assert told.errors == sum(one.state is RequestState.FAILED for one in those)
    assert told.gone == sum(one.state is RequestState.GONE for one in those)
    assert told.prompt_tokens == sum(one.prompt_tokens or 0 for one in those)
    assert told.cached_tokens == sum(one.cached_tokens or 0 for one in those)
    assert told.output_tokens == sum(one.completion_tokens or 0 for one in those)
    assert told.reasoning_tokens == sum(one.reasoning_tokens or 0 for one in those)
    assert told.energy_wh == pytest.approx(sum(one.energy_wh or 0.0 for one in those))
    waits = [wait_of(one) for one in those if wait_of(one) > 1]
    assert told.waited == len(waits)
    assert told.wait_total_s == pytest.approx(sum(waits))
    within_a_hundredth(told.wait_s, waits)
    within_a_hundredth(told.ttft_s, [one.ttft_s for one in those if one.ttft_s is not None])
    within_a_hundredth(told.decode_tok_s, [one.decode_tok_s for one in those if one.decode_tok_s is not None])


def compare(report: UsageReport, made: Sequence[Request], name: Callable[[Request], str]) -> None:
    groups = defaultdict(list)
    for one in made:
        groups[name(one)].append(one)
    assert {row.group for row in report.rows} == set(groups)
    for row in report.rows:
        same(row, groups[row.group])
    same(report.total, made)


MADE = traffic(3000, 5 * DAY)
EVERYTHING = START, START + 6 * DAY


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """Five days of traffic."""
    with closing(schema.connect(path)) as made:
        for statement, row in sums_of(MADE):
            made.execute(statement, row)
        yield made


def test_every_group_equals_the_requests_themselves(database: sqlite3.Connection) -> None:
    for by in ("profile", "client", "key"):
        report = usage.read_usage(database, UsageQuery(by=by), EVERYTHING)
        compare(report, MADE, lambda one, by=by: getattr(one, by) or "")
        assert [row.requests for row in report.rows] == sorted((row.requests for row in report.rows), reverse=True)


def test_days_begin_where_the_caller_is(database: sqlite3.Connection) -> None:
    for offset in (0, 2 * HOUR, -7 * HOUR):
        report = usage.read_usage(database, UsageQuery(by="day", offset_s=offset), EVERYTHING)
        named = report.replace(
            rows=tuple(row.replace(group=str(int(((row.start or 0) + offset) // DAY))) for row in report.rows)
        )
        compare(named, MADE, lambda one, offset=offset: str(int(((one.finished_at or 0) + offset) // DAY)))
        assert [row.start for row in report.rows] == sorted(row.start or 0 for row in report.rows)
    assert report.rows[0].group == "2026-09-21"
    hours = usage.read_usage(database, UsageQuery(by="hour"), (START, START + DAY))
    within = [one for one in MADE if (one.finished_at or 0) < START + DAY]
    assert sum(row.requests for row in hours.rows) == len(within)
    assert hours.rows[0].group == "2026-09-21 15:00"


@pytest.mark.parametrize("number", [0, 1, 3, 90])
def test_many_sketches_are_added_as_one_after_the_other(number: int) -> None:
    chance = random.Random(7)
    values = [[chance.lognormvariate(0, 2) for _ in range(60)] for _ in range(number)]
    added = SketchSum()
    for some in (*values, []):
        added.step(LogSketch.of(some).pack())
    assert LogSketch.unpack(added.finalize()).counts == LogSketch.of(chain.from_iterable(values)).counts


def test_filters_cut_the_sum(database: sqlite3.Connection) -> None:
    made = [one for one in MADE if one.profile == "alpha"]
    codex = usage.read_usage(database, UsageQuery(by="key", profile="alpha", client="codex"), EVERYTHING)
    same(codex.total, [one for one in made if one.client == "codex"])
    own = usage.read_usage(database, UsageQuery(by="profile", profile="alpha"), EVERYTHING)
    assert [row.group for row in own.rows] == ["alpha"]
    same(own.total, made)


async def test_sums_are_written_with_the_requests_and_outlive_the_daemon(path: Path) -> None:
    made = [asked(n, START + n, key="ann", ttft_s=0.1 * (1 + n)) for n in range(40)]
    for part in (made[:15], made[15:]):
        async with Store.opened(path, lambda _: None) as store:
            for one in part:
                store.record_request(one)
            store.record_request(asked(99, START, id="t", route="/tokenize"))
    async with Store.opened(path, lambda _: None) as store:
        report = await store.history.usage(UsageQuery(by="client"), (START, START + HOUR))
        assert report.total.requests == 40
        within_a_hundredth(report.total.ttft_s, [one.ttft_s or 0.0 for one in made])
    assert rows(path, "SELECT count(*) FROM usage_hours") == [(1,)]


def test_a_client_that_invents_names_fills_no_database() -> None:
    made = sums_of(asked(n, START, client=f"c{n}", profile=f"p{n}") for n in range(GROUPS + 500))
    assert len(made) == GROUPS + 1
    assert made[-1][1][1:5] == (OTHER, OTHER, "", 500)


def test_sketches_merge_in_any_order_and_keep_what_is_no_number_as_zero() -> None:
    chance = random.Random(1)
    values = [chance.lognormvariate(0, 3) for _ in range(2000)]
    parts = [LogSketch.of(values[n::7]).pack() for n in range(7)]
    forth, back = None, None
    for part in parts:
        forth = merge_packed(forth, part)
    for part in reversed(parts):
        back = merge_packed(part, back)
    assert LogSketch.unpack(forth).counts == LogSketch.unpack(back).counts == LogSketch.of(values).counts
    for share in (0.0, 0.5, 0.99, 1.0):
        assert LogSketch.unpack(forth).quantiles((share,)) == [pytest.approx(quantile(values, share), rel=0.0101)]
    assert LogSketch.unpack(None).quantiles((0.5,)) == [None]
    odd = LogSketch.of([float("nan"), -1.0, 0.0, float("inf")])
    assert odd.quantiles((0.0, 1.0))[0] == 0.0
    assert LogSketch.unpack(odd.pack()).count == 4
