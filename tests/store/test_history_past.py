"""Past requests, marks and what a new daemon shows of the time before it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import stored
from recorded import START, asked, sample
from stored import swap

from sparkdash.api.requests import MarkQuery, PastRequestQuery, UsageQuery
from sparkdash.domain.engine import Incident
from sparkdash.domain.event import Level, Notice
from sparkdash.domain.memory import GuardKill
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Start, Step, SwapOutcome
from sparkdash.errors import AdmissionError, DaemonError
from sparkdash.store import Store

PAST = [
    asked(
        n, START + n, profile="beta/fast" if n % 3 == 0 else "alpha", client="aider" if n % 4 == 0 else "codex",
        state=RequestState.FAILED if n % 10 == 0 else RequestState.DONE, status=503 if n % 10 == 0 else 200,
        ttft_s=None if n % 10 == 0 else (n * 7 % 50) / 10, completion_tokens=n * 13 % 97,
        granted_at=START + n + (n * 11 % 30), finished_at=START + n + 40 + (n * 3 % 20), key="ann", energy_wh=0.5,
        error="engine_failed" if n % 10 == 0 else None, session=f"s{n % 7}" if n % 5 else None,
    )
    for n in range(60)
]  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.opened(tmp_path / "sparkdash.db", lambda _: None) as made:
        for one in PAST:
            made.record_request(one)
        yield made


async def ask(store: Store, **wanted: object) -> list[Request]:
    found, after = list[Request](), None
    while True:
        page = await store.history.requests(PastRequestQuery(**({"limit": 7} | wanted | {"after": after})))  # type: ignore[arg-type]
        found += page.requests
        if (after := page.next) is None:
            return found


async def test_past_requests_come_whole_newest_first_page_by_page(store: Store) -> None:
    assert await ask(store) == PAST[::-1]


async def test_each_filter_leaves_out_what_does_not_fit(store: Store) -> None:
    newest = PAST[::-1]
    assert await ask(store, profile="alpha") == [one for one in newest if one.profile == "alpha"]
    assert await ask(store, client="aider") == [one for one in newest if one.client == "aider"]
    assert await ask(store, session="s3") == [one for one in newest if one.session == "s3"]
    failed = [one for one in newest if one.state is RequestState.FAILED]
    assert await ask(store, status="failed") == await ask(store, status="503") == failed
    assert await ask(store, min_ttft=3.0) == [one for one in newest if (one.ttft_s or 0) >= 3]
    since, until = START + 60.0, START + 80.0
    within = [one for one in newest if since <= (one.finished_at or 0) < until]
    assert await ask(store, since=since, until=until) == within
    assert await ask(store, profile="beta/fast", client="codex") == [
        one for one in newest if one.profile == "beta/fast" and one.client == "codex"
    ]


async def test_sessions_are_added_up_over_their_own_requests_the_newest_first(store: Store) -> None:
    report = await store.history.usage(UsageQuery(by="session", client="codex"), (START, START + 7200))
    of_codex = [one for one in PAST if one.client == "codex" and one.session]
    assert [row.group for row in report.rows] == list(dict.fromkeys(one.session for one in of_codex[::-1]))
    for row in (*report.rows, report.total):
        those = [one for one in of_codex if row.group in ("all", one.session)]
        assert (row.start, row.end) == (min(o.started_at for o in those), max(o.finished_at or 0 for o in those))
        assert (row.requests, row.errors) == (len(those), sum(o.state is RequestState.FAILED for o in those))
        assert row.output_tokens == sum(o.completion_tokens or 0 for o in those)
        assert row.energy_wh == 0.5 * len(those)


@pytest.mark.parametrize("sort", ["ttft", "wait", "duration", "output"])
async def test_the_greatest_come_first_over_all_pages(store: Store, sort: str) -> None:
    figure = {
        "ttft": lambda one: one.ttft_s,
        "wait": lambda one: one.granted_at - one.started_at,
        "duration": lambda one: one.finished_at - one.started_at,
        "output": lambda one: one.completion_tokens,
    }[sort]
    told = await ask(store, sort=sort)
    assert sorted(one.id for one in told) == sorted(one.id for one in PAST if figure(one) is not None)
    assert [figure(one) for one in told] == sorted(map(figure, told), reverse=True)


async def test_a_page_that_no_answer_gave_is_refused(store: Store) -> None:
    with pytest.raises(AdmissionError, match="continues no list"):
        await store.history.requests(PastRequestQuery(after="x"))
    with pytest.raises(AdmissionError):
        await store.history.requests(PastRequestQuery(after=f"1:{2**63}"))


async def test_marks_are_what_happened_in_order(store: Store) -> None:
    stages = tuple(Step(name=name, s=s) for name, s in {"imports": 4, "weights": 20, "compile": 5}.items())
    store.record_swap(swap("100", 30).replace(start=Start(stages=stages, first_on_image=True)), "f")
    store.record_swap(swap("200", 30, outcome=SwapOutcome.FAILED), "f")
    store.record_kill(GuardKill(at=300, profile="b", available=1, reason="Memory ran short."))
    store.record_incident(
        Incident(id="i", began=400, named_at=410, profile="a", fingerprint="f", why="It stood still.", note="")
    )
    store.record_notice(Notice(level=Level.WARNING, code="x", text="Look at this.", at=500))
    told = (await store.history.marks(MarkQuery(limit=10), (0, 1000))).marks
    assert [(one.kind.value, one.at, one.until, one.profile, one.code) for one in told] == [
        ("swap", 100, 130, "a", "done"), ("swap", 200, 230, "a", "failed"), ("kill", 300, None, "b", "guard_kill"),
        ("incident", 400, None, "a", "open"), ("notice", 500, None, None, "x"),
    ]  # fmt: skip
    assert told[0].text == "a, request: 30 s, mostly weights 20s, compile 5.0s, first start on this image"
    assert told[1].text == "a, request: failed after 30 s: engine_crash"
    own = await store.history.marks(MarkQuery(limit=10, profile="b"), (0, 1000))
    assert [one.text for one in own.marks] == ["Memory ran short."]
    last = await store.history.marks(MarkQuery(profile="a", limit=2), (0, 1000))
    assert ([one.at for one in last.marks], last.cut) == ([200, 400], True)


async def test_a_stop_is_a_mark_of_all_that_it_stopped(store: Store) -> None:
    store.record_swap(swap("100", 3).replace(target=None, evict=("a", "b")), "")
    store.record_swap(swap("200", 4).replace(target=None, evict=("b",)), "")
    of_a, of_b = [(await store.history.marks(MarkQuery(profile=name, limit=9), (0, 1000))).marks for name in "ab"]
    assert [(one.text, one.profile) for one in of_b] == [
        ("Stop of a and b, request: 3 s", None), ("Stop of b, request: 4 s", "b"),
    ]  # fmt: skip
    assert of_a == of_b[:1]
    assert store.learned.expected_s("") is None


async def test_figures_are_in_the_file_without_a_later_sample(path: Path) -> None:
    async with Store.opened(path, lambda _: None) as store, asyncio.timeout(60):
        store.record_sample(sample(START, None))
        store.record_sample(sample(START + 1))
        while not stored.rows(path, "SELECT 1 FROM history_seconds"):  # noqa: ASYNC110 - a file cannot tell
            await asyncio.sleep(0)
    assert stored.rows(path, "SELECT DISTINCT start FROM history_seconds") == [(START,), (START + 1,)]


async def test_a_new_daemon_knows_the_requests_swaps_notices_and_speeds_before_it(path: Path) -> None:
    swaps = [swap(str(n), 30 + n) for n in (100, 200)]
    notice = Notice(level=Level.INFO, code="x", text="It happened.", at=5.0)
    async with Store.opened(path, lambda _: None) as store:
        for one in PAST:
            store.record_request(one)
        for each in swaps:
            store.record_swap(each, "f")
        store.record_notice(notice)
    async with Store.opened(path, lambda _: None) as store:
        past = store.past
    assert list(past.requests) == PAST[:9:-1]
    assert past.swaps == (swaps[1], swaps[0])
    assert past.notices == (notice,)
    alpha = past.figures["alpha"]
    assert (alpha.best, alpha.rates, len(alpha.ttfts)) == (50.0, (), 20), "none of them had the engine to itself"


async def test_rates_before_this_daemon_are_those_of_requests_alone_in_their_engine(path: Path) -> None:
    """Whatever ran beside counts, also what failed; what ended in the queue, and another box's, does not."""
    shown = [
        (60.0, 0, 9, {}), (31.0, 10, 20, {}), (30.0, 19, 30, {"state": RequestState.FAILED}), (62.0, 30, 35, {}),
        (58.0, 32, 40, {"node": "spark2"}), (0.0, None, 34, {"state": RequestState.GONE}), (61.0, 41, 45, {}),
    ]  # fmt: skip
    async with Store.opened(path, lambda _: None) as store:
        for n, (rate, begin, end, more) in enumerate(shown):
            store.record_request(asked(n, START, decode_tok_s=rate, granted_at=begin, finished_at=end, **more))
    async with Store.opened(path, lambda _: None) as store:
        assert store.past.figures["alpha"].rates == (60.0, 62.0, 58.0, 61.0)


async def test_a_database_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    """503 with the reason; the daemon serves on, and what it forgot at its start stays forgotten."""
    path = tmp_path / "sparkdash.db"
    path.write_text("this is no database, though it is long enough to look like one to a reader of headers")
    async with Store.opened(path, lambda _: None) as store:
        assert store.past.requests == ()
        with pytest.raises(DaemonError) as refused:
            await store.history.figures()
    assert (refused.value.code, refused.value.status) == ("history_unavailable", 503)
