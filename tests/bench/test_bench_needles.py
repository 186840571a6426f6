"""Needles: equal in all arms, at their depth, scored exactly, compared in pairs, told in one verdict."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparkdash.bench.judge.answer_scorer import Outcome
from sparkdash.bench.judge.needles import needle_answers, needle_outcomes
from sparkdash.bench.plan import corpora, suites
from sparkdash.bench.plan.captured_requests import chats_text
from sparkdash.bench.plan.corpus_text import cut_corpus
from sparkdash.bench.plan.needles import DEPTHS, needle, needle_prompt
from sparkdash.bench.records import CellRecord, LaunchRecord, RequestSample
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results, gather
from sparkdash.bench.run import Arm, CellKey, Kind, LaunchSlot, Mode, PlannedCell, Run
from sparkdash.errors import ProfileError
from sparkdash.sim.engine.tokens import tokenize

AT = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
SHORT, LONG = (CellKey(suite="needles", context=context, output=64, kind=Kind.NEEDLE) for context in (2048, 8192))
Say = Callable[[str, CellKey, int], bool]
"""(arm, cell, question) -> whether the answer is right."""


async def tokens(_kind: str, content: str) -> int:
    return len(tokenize(f"<|user|>\n{content}<|end|>\n<|assistant|>\n"))


def asked(reps: int, say: Say, arms: tuple[str, ...] = ("A", "B")) -> Results:
    order = tuple(LaunchSlot(arm=arm, block=0) for arm in arms)
    run = Run(
        id="x", suite="needles", suite_version="1", suite_hash="5eed",
        arms=tuple(Arm(name=arm, profile=arm) for arm in arms), baseline="A", mode=Mode.SCREEN, seed=7, created_at=AT,
        order=order, cells=tuple(PlannedCell(key=key, reps=reps) for key in (SHORT, LONG)),
    )  # fmt: skip
    records: list[LaunchRecord | RequestSample | CellRecord] = []
    for launch, slot in enumerate(order):
        for key in (SHORT, LONG):
            for rep in range(reps):
                number = needle(7, key.context, rep).number + (not say(slot.arm, key, rep))
                records.append(
                    RequestSample(
                        cell=key, arm=slot.arm, launch=launch, rep=rep, prompt_id=f"needle {rep}", t0_ns=0,
                        text=f"It is near the end.\nANSWER: {number}", finish_reason="stop",
                    )
                )  # fmt: skip
            records.append(CellRecord(key=key, arm=slot.arm, launch=launch, started_at=AT, ended_at=AT))
    return gather(run, records)


@pytest.mark.parametrize("item", range(5))
async def test_a_needle_stands_at_its_depth_in_a_prompt_of_the_exact_length(item: int) -> None:
    """At most a sentence before it; the number stands once, and the text around it is the corpus."""
    corpus = corpora.load_corpus("prose")
    prompt = await needle_prompt(7, LONG, item, tokens, corpus)
    assert prompt.tokens == 8192 == await tokens("", str(prompt.content))
    hidden, text = needle(7, 8192, item), str(prompt.content)
    assert hidden.depth == DEPTHS[item]
    assert text.count(str(hidden.number)) == 1
    before = text.split(hidden.fact)[0]
    assert abs(100 * len(before) / len(text) - hidden.depth) < 3
    assert text.endswith(hidden.question)
    body = before.split("\n", 1)[1].strip()
    assert body[-400:] in "".join(corpus.pieces)


async def test_questions_are_the_same_in_every_launch_and_do_not_depend_on_their_number() -> None:
    corpus = corpora.load_corpus("code")
    first, again = [await needle_prompt(7, SHORT, 3, tokens, corpus) for _ in range(2)]
    assert first == again
    others = [await needle_prompt(7, SHORT, item, tokens, corpus) for item in (8, 13)]
    assert len({first.id, *(one.id for one in others)}) == 3
    assert len({needle(7, 2048, item).number for item in range(50)}) == 50


async def test_needles_lie_in_generated_prose_without_a_corpus() -> None:
    prompt = await needle_prompt(7, SHORT, 1, tokens, None)
    assert prompt.tokens == 2048
    assert needle(7, 2048, 1).fact in str(prompt.content)


def test_only_the_hidden_number_on_the_last_line_is_right() -> None:
    results = asked(5, lambda _arm, _key, rep: rep != 2)
    outcomes = needle_outcomes(results, "B")
    assert [outcomes[SHORT, rep] for rep in range(5)] == [
        Outcome.RIGHT, Outcome.RIGHT, Outcome.WRONG, Outcome.RIGHT, Outcome.RIGHT,
    ]  # fmt: skip


def test_each_depth_has_a_row_with_each_length_and_a_paired_test() -> None:
    """B loses the needles in the middle of long prompts, of eight each."""
    results = asked(40, lambda arm, key, rep: arm == "A" or key is SHORT or rep % 5 != 2)
    (base, arm) = needle_answers(results)
    assert base.verdict is None
    assert [one.depth for one in arm.depths] == [0, 25, 50, 75, 100]
    middle = arm.depths[2]
    assert (middle.by_context[2048].right, middle.by_context[8192].right, middle.all.n) == (8, 0, 16)
    assert middle.verdict is not None
    assert middle.verdict.p == pytest.approx(2 / 2**8)
    page = render_markdown(report_page(assemble_report(results)))
    assert "| Depth | ctx=2K | ctx=8K | All lengths" in page
    assert "| 50 %  | 8/8    | 0/8    | 8/16 = 50 %" in page
    assert "B: needles 100.0 -> 90.0 %: loses needles." in page
    assert "Your own requests" not in page


def test_equal_arms_keep_their_needles_and_few_are_not_judged() -> None:
    def verdicts(reps: int) -> str | None:
        return assemble_report(asked(reps, lambda *_: True)).own_work[1].verdict

    assert verdicts(100) == "needles 100.0 -> 100.0 %: keeps needles"
    assert verdicts(5) == "needles 100.0 -> 100.0 %: too few requests to judge needles"


def test_a_needle_without_a_context_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("suite: mine\nversion: 1\nabout: x\ncells:\n  - {output: 8, kind: needle}\n")
    with pytest.raises(ProfileError, match="needle lies in a context"):
        suites.load_suite(str(file))


def test_the_shipped_suite_hides_its_needles_in_the_prose_corpus() -> None:
    suite = suites.load_suite("needles")
    assert suite.corpus_text is not None
    assert suite.corpus_text.told.name == "prose"
    assert all(cell.reps % len(DEPTHS) == 0 for cell in suite.planned(Mode.STANDARD))
    assert suite.with_corpus("code").hash != suite.hash


def test_the_words_of_captured_chats_become_a_haystack() -> None:
    """Strings and parts; images and calls have no words."""
    chats = [
        {"messages": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": None}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "three"}, {"type": "image_url"}]}]},
    ]
    assert chats_text(chats) == "one two\n\nthree"
    assert cut_corpus("captured", chats_text(chats)) is None
    assert cut_corpus("captured", chats_text(chats * 200)) is not None
