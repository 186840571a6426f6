"""Usage of access keys over days and restarts."""

from __future__ import annotations

from pathlib import Path

from sparkdash.domain.lease import Request, RequestState
from sparkdash.store import Store, key_usage


async def test_what_a_key_used_is_summed_by_day(tmp_path: Path) -> None:
    """Over restarts, also for another process while the daemon serves; requests without a key count for nobody."""
    path, day = tmp_path / "s.db", 20_000
    at = day * 86400.0 + 5

    def ended(id_: str, when: float, key: str | None = "k", prompt: int | None = 10) -> Request:
        return Request(
            id=id_, client="c", profile="a", route="/v1", state=RequestState.DONE, started_at=when, finished_at=when,
            key=key, prompt_tokens=prompt, completion_tokens=1,
        )  # fmt: skip

    async with Store.opened(path, [].append) as store:
        store.record_request(ended("1", at - 86400))
        store.record_request(ended("2", at))
        store.record_request(ended("3", at, prompt=None))
        store.record_request(ended("4", at, key=None))
        assert (store.tokens_on(day, "k"), store.tokens_on(day, "x"), store.tokens_on(day + 1, "k")) == (12, 0, 0)
    async with Store.opened(path, [].append) as store:
        assert store.tokens_on(day, "k") == 12
        assert key_usage.read_key_usage(path, ["k", "x"], day) == {
            "k": key_usage.KeyUsage(3, 2, 20, 10, 3, 2),
            "x": key_usage.KeyUsage(),
        }
        store.record_request(ended("5", at + 86400))
        assert store.tokens_on(day + 1, "k") == 11
    assert key_usage.read_key_usage(tmp_path / "none.db", ["k"], day) == {}


async def test_a_clock_that_was_ahead_lifts_no_keys_limit(tmp_path: Path) -> None:
    """Before the network has set it right, a box may show next month: today still counts, also after a restart."""
    path, day = tmp_path / "s.db", 20_000

    def ended(id_: str, day: int) -> Request:
        return Request(
            id=id_, client="c", profile="a", route="/v1", state=RequestState.DONE, started_at=day * 86400.0, key="k",
            prompt_tokens=10,
        )  # fmt: skip

    async with Store.opened(path, [].append) as store:
        store.record_request(ended("1", day + 30))
        store.record_request(ended("2", day))
        assert store.tokens_on(day, "k") == 10
    async with Store.opened(path, [].append) as store:
        assert store.tokens_on(day, "k") == 10
        store.record_request(ended("3", day + 1))
        assert store.tokens_on(day + 1, "k") == 10
