"""Tokens, words and the cut of an answer."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.sim import prose
from sparkdash.sim.speed import text_of, token_id, token_of, tokenize


@given(st.text())
def test_tokens_hold_the_whole_text(text: str) -> None:
    """Joining a text's tokens gives the text, and every id gives its token."""
    tokens = tokenize(text)
    assert text_of(tokens) == text
    assert [token_of(token_id(token)) for token in tokens] == tokens
    assert all(token_id(token) < 2**53 for token in tokens)


@given(st.text(), st.text())
def test_tokens_are_stable_under_continuation(begin: str, more: str) -> None:
    """A longer text begins with the tokens of its beginning, save the last one."""
    known = tokenize(begin)[:-1]
    assert tokenize(begin + more)[: len(known)] == known


@pytest.mark.parametrize("number", [-1, 0, 1, 2**70])
def test_unknown_ids_are_refused(number: int) -> None:
    """A number that is no token's id is a ValueError."""
    with pytest.raises(ValueError, match="no token id"):
        token_of(number)


def test_prose_has_about_four_characters_a_token() -> None:
    """The tokenizer's rate on its own prose is near four characters."""
    text = prose.paragraph(prose.seeded_random("x"), 500)
    assert 3.5 < len(text) / len(tokenize(text)) < 4.5


def test_answers_repeat_and_say_what_they_are() -> None:
    """The same seed gives the same text, another seed another, and both begin by saying that they are simulated."""
    first, again, other = (list(islice(prose.answer_tokens("m", seed), 200)) for seed in ("a", "a", "b"))
    assert first == again != other
    assert text_of(first).startswith("This is a simulated answer in the name of m")


def test_generated_tokens_survive_being_sent_back() -> None:
    """An answer's text, tokenized anew, gives the same tokens: a conversation's next prompt hits the cache."""
    tokens = list(islice(prose.answer_tokens("m", "turns"), 2000))
    assert tokenize(text_of(tokens))[:-1] == tokens[:-1]


def test_script_ends_at_its_limit_or_by_itself() -> None:
    """The limit ends an answer with "length", its natural end with "stop", and the limit wins a tie."""
    ends = {
        (limit, natural): [
            w.finish for w in prose.cut_answer(prose.answer_tokens("m", "s"), limit=limit, natural=natural)
        ]
        for limit, natural in ((5, None), (9, 5), (5, 5))
    }
    assert ends[5, None] == [None] * 4 + ["length"]
    assert ends[9, 5] == [None] * 4 + ["stop"]
    assert ends[5, 5] == [None] * 4 + ["length"]


def test_stop_strings_never_show() -> None:
    """Text before a stop string is given in full, nothing of the string itself, even when it spans tokens."""
    words = list(prose.cut_answer(iter(tokenize("one two STOP three")), limit=99, natural=None, stops=("two STOP",)))
    assert "".join(word.text for word in words) == "one "
    assert (words[-1].finish, words[-1].stop_reason) == ("stop", "two STOP")


def test_text_held_back_for_a_stop_string_comes_at_the_end() -> None:
    """What only looked like a stop string is still given when the answer ends."""
    words = list(prose.cut_answer(iter(tokenize("one two three")), limit=3, natural=None, stops=("threefold",)))
    assert "".join(word.text for word in words) == "one two three"
