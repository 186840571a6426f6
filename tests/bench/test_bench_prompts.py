"""Prompts: exact lengths, equal in all arms, and nothing that a cache could know."""

from __future__ import annotations

import hashlib
import re
from itertools import islice

import pytest

from sparkdash.bench.plan import prompts, texts
from sparkdash.bench.plan.prompts import PromptIndex
from sparkdash.bench.run import CellKey, Kind
from sparkdash.sim.speed import tokenize

GOLDEN = {"prose": "2296df97fbdc", "code": "e5081cb5ae52", "json": "1c6db707e3fd", "chat": "7370c27efb83"}
"""SHA-256 of 2000 words of each class, its beginning. When it changes, prose.VERSION must."""
COLD = CellKey(suite="s", context=2048, output=32)


async def tokens(_kind: str, content: str) -> int:
    return len(tokenize(f"<|user|>\n{content}<|end|>\n<|assistant|>\n"))


async def words(_kind: str, content: str) -> int:
    """Another tokenizer: one token a word, and a template of seven."""
    return len(content.split()) + 7


async def pairs(_kind: str, content: str) -> int:
    """A poor tokenizer, which makes many tokens of a word: two characters each, and a digit or mark by itself."""
    return 9 + len(re.findall(r"\s?[a-z]{1,2}|[^a-z]", content))


@pytest.mark.parametrize("context", [128, 2048, 16384])
@pytest.mark.parametrize("text", ["prose", "code", "json", "chat"])
@pytest.mark.parametrize("count", [tokens, words, pairs])
async def test_a_prompt_has_exactly_the_tokens_that_were_meant(context: int, text: str, count: prompts.Count) -> None:
    """By whatever tokenizer, in every class of text."""
    key = CellKey(suite="s", context=context, output=32, text=text)
    for rep in range(2):
        prompt = await prompts.build_prompt(1, key, PromptIndex(rep), count)
        assert prompt.tokens == context == await count(text, prompt.content)


async def test_equal_questions_give_equal_prompts_and_others_differ_from_the_first_token_on() -> None:
    """f(seed, cell, repetition, stream); the head of each is its own."""
    place = PromptIndex(3, stream=1)
    first, again = [await prompts.build_prompt(1, COLD, place, tokens) for _ in range(2)]
    assert first == again
    others = [
        await prompts.build_prompt(2, COLD, place, tokens),
        await prompts.build_prompt(1, COLD, PromptIndex(4, stream=1), tokens),
        await prompts.build_prompt(1, COLD, PromptIndex(3), tokens),
        await prompts.build_prompt(1, COLD.model_copy(update={"output": 33}), place, tokens),
        await prompts.build_prompt(1, COLD.model_copy(update={"context": 2049}), place, tokens),
    ]
    heads = {prompt.content[:13] for prompt in (first, *others)}
    assert len(heads) == 6
    assert len({prompt.id for prompt in (first, *others)}) == 6


async def test_a_second_try_is_the_same_text_under_another_head() -> None:
    """So that it is paired with the other arms' first, and no cache knows it."""
    first, second = [await prompts.build_prompt(1, COLD, PromptIndex(0, attempt=attempt), tokens) for attempt in (0, 1)]
    assert first.id == second.id
    assert first.content[:13] != second.content[:13]
    assert first.content[20:400] == second.content[20:400]


async def test_a_suites_name_changes_no_prompt() -> None:
    """An owner's own suite with the same cell is measured with the same text."""
    mine = COLD.model_copy(update={"suite": "mine"})
    assert (await prompts.build_prompt(1, mine, PromptIndex(0), tokens)) == (
        await prompts.build_prompt(1, COLD, PromptIndex(0), tokens)
    )


async def test_questions_of_a_prefix_cell_share_all_before_them() -> None:
    """One system prompt, many questions."""
    key = COLD.model_copy(update={"kind": Kind.PREFIX, "warm": True})
    first, second = [(await prompts.build_prompt(1, key, PromptIndex(rep), tokens)).content for rep in (0, 1)]
    assert first != second
    shared = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared > 0.9 * len(first)


async def test_a_cell_takes_all_classes_in_turn() -> None:
    """Unless it names one."""
    assert [prompts.text_class(COLD, rep) for rep in range(5)] == ["prose", "code", "json", "chat", "prose"]
    assert prompts.text_class(COLD.model_copy(update={"text": "json"}), 0) == "json"


def test_the_text_is_the_same_on_every_machine() -> None:
    """A golden beginning of each class: prompts of other machines and versions must be these."""
    texts = {kind: "".join(islice(texts.text_pieces(kind, "golden"), 2000)) for kind in prompts.CLASSES}
    assert texts["prose"].startswith("Of 761 islands only 17 were repaired between")
    assert {kind: hashlib.sha256(text.encode()).hexdigest()[:12] for kind, text in texts.items()} == GOLDEN


@pytest.mark.parametrize("kind", ["prose", "code", "json", "chat"])
def test_text_does_not_repeat_itself(kind: str) -> None:
    """A drafter that guesses by what came before finds little: runs of 8 words that occur again are rare."""
    source = texts.text_pieces(kind, "variety")
    text = [next(source).strip() for _ in range(4000)]
    runs = [tuple(text[at : at + 8]) for at in range(len(text) - 8)]
    assert len(set(runs)) > 0.98 * len(runs)
