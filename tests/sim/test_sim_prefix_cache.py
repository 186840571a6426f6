"""The block cache: what is shared, what is kept, who leaves first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkdash.sim.speed import PrefixCache


def words(text: str) -> list[bytes]:
    """One token per character."""
    return [character.encode() for character in text]


def stored(cache: PrefixCache, text: str) -> None:
    """Compute `text` and let it go."""
    tokens = words(text)
    holding = cache.take(cache.matched(tokens))
    assert cache.grow(holding, len(tokens))
    cache.publish(holding, tokens)
    cache.release(holding)


def test_known_beginnings_are_matched_in_whole_blocks() -> None:
    """A prompt finds the blocks it shares with an earlier one, up to the first difference."""
    cache = PrefixCache(64, block=4)
    stored(cache, "aaaabbbbcccc")
    assert len(cache.matched(words("aaaabbbbXXXX"))) == 2
    assert len(cache.matched(words("aaaaXbbbcccc"))) == 1
    assert cache.matched(words("Xaaabbbbcccc")) == []


def test_the_last_token_is_always_computed() -> None:
    """A prompt that is known in full still leaves its last block to compute."""
    cache = PrefixCache(64, block=4)
    stored(cache, "aaaabbbb")
    assert len(cache.matched(words("aaaabbbb"))) == 1
    assert len(cache.matched(words("aaaabbbbc"))) == 2


def test_kept_blocks_count_as_free() -> None:
    """Usage is what requests hold; blocks kept for reuse do not count, and make room when it is needed."""
    cache = PrefixCache(16, block=4)
    stored(cache, "aaaabbbbccccdddd")
    assert cache.usage == 0
    stored(cache, "eeeeffff")
    assert len(cache.matched(words("aaaabbbbccccdddd."))) == 2, "the tail has left, the head is kept"


def test_a_full_pool_refuses_and_changes_nothing() -> None:
    """Growing beyond the pool is refused, and the holding stays as it was."""
    cache = PrefixCache(16, block=4)
    first, second = cache.take([]), cache.take([])
    assert cache.grow(first, 12)
    assert not cache.grow(second, 8)
    assert (cache.in_use, second.fresh) == (3, 0)


def test_shared_blocks_stay_until_the_last_holder_leaves() -> None:
    """Two requests on one prefix use its blocks once, and releasing twice does no harm."""
    cache = PrefixCache(64, block=4)
    stored(cache, "aaaabbbb")
    tokens = words("aaaabbbbc")
    first, second = cache.take(cache.matched(tokens)), cache.take(cache.matched(tokens))
    assert cache.in_use == 2
    cache.release(first)
    cache.release(first)
    assert cache.in_use == 2
    cache.release(second)
    assert cache.in_use == 0


@given(st.lists(st.tuples(st.text("ab", max_size=40), st.booleans()), max_size=30))
def test_books_balance_whatever_comes(requests: list[tuple[str, bool]]) -> None:
    """Blocks in use never exceed the pool, and none is left when all have gone."""
    cache = PrefixCache(48, block=4)
    open_ones = []
    for text, leaves in requests:
        tokens = words(text)
        holding = cache.take(cache.matched(tokens))
        if cache.grow(holding, len(tokens)):
            cache.publish(holding, tokens)
        open_ones.append(holding)
        assert 0 <= cache.in_use <= cache.blocks
        if leaves:
            cache.release(open_ones.pop(0))
    for holding in open_ones:
        cache.release(holding)
    assert cache.in_use == 0
