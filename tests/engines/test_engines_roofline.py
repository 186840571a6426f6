"""The decode roofline against what published configurations come to, worked out from their shapes."""

import pytest

from sparkdash.domain.weights import Attention, KvLayers, Unread, WeightBytes, WeightFacts
from sparkdash.engines.roofline import experts_hit, model_draft_bytes, most_steps_s, mtp_draft_bytes, step_bytes

NVFP4, BF16 = 4.5 / 8, 2.0
"""Bytes per parameter, block scales included."""


def facts(weights: WeightBytes, *kv: KvLayers, **more: object) -> WeightFacts:
    return WeightFacts.model_validate(
        {"origin": "by hand", "format": "safetensors", "bytes": weights, "kv": kv, **more}
    )


def coder() -> WeightFacts:
    """Qwen3-Coder-30B-A3B, every linear NVFP4, head BF16: 48 layers, hidden 2048, 128 experts of 768, 8 active."""
    attention = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512)
    expert = 3 * 2048 * 768
    return facts(
        WeightBytes(
            dense=round(attention * NVFP4 + 48 * 2048 * 128 * BF16),
            experts=round(48 * 128 * expert * NVFP4),
            embedding=round(151936 * 2048 * BF16),
            head=round(151936 * 2048 * BF16),
        ),
        KvLayers(kind=Attention.FULL, layers=48, key_elements=512, value_elements=512),
        experts=128,
        active_experts=8,
    )


def test_a_step_reads_the_active_weights_once() -> None:
    """A ceiling of 125 tok/s; test_catalog_weights.py has gpt-oss-120b's 5.00 GB a token, a ceiling of 54.5."""
    found = step_bytes(coder())
    assert found == pytest.approx(2.19e9, rel=0.01)
    assert found == pytest.approx(coder().active_bytes(), abs=1)


@pytest.mark.parametrize(("width", "hit", "ratio"), [(2, 15.5, 1.44), (3, 22.5, 1.85)])
def test_verifying_more_positions_hits_more_experts(width: int, hit: float, ratio: float) -> None:
    """So speculation must accept 1.44 tokens a step to pay at all at a verify width of two."""
    plain, verify = step_bytes(coder()), step_bytes(coder(), speculated=width - 1)
    share = experts_hit(coder(), width)
    assert plain is not None
    assert verify is not None
    assert share is not None
    assert 128 * share == pytest.approx(hit, abs=0.05)
    assert verify / plain == pytest.approx(ratio, abs=0.01)


def test_states_are_read_and_written() -> None:
    linear = KvLayers(kind=Attention.LINEAR, layers=48, state_bytes=3_000_000)
    full = KvLayers(kind=Attention.FULL, layers=16, key_elements=1024, value_elements=1024)
    assert step_bytes(facts(WeightBytes(dense=16_000_000_000), linear, full)) == 16_000_000_000 + 2 * 48 * 3_000_000


def test_drafters() -> None:
    """MTP layers of a mixture read their active share; a drafter without a head of its own uses the target's."""
    body = coder().bytes.model_copy(update={"draft": 1_000_000_000})
    mtp = coder().model_copy(update={"bytes": body})
    share = (body.dense + body.experts / 16) / (body.dense + body.experts)
    assert mtp_draft_bytes(mtp) == round(1e9 * share) + body.head
    assert mtp_draft_bytes(coder()) is None
    headless, headed = facts(WeightBytes(dense=700)), facts(WeightBytes(dense=700, head=30))
    assert model_draft_bytes(headless, coder()) == 700 + coder().bytes.head
    assert model_draft_bytes(headed, coder()) == 730


def test_what_is_not_known_leaves_no_ceiling() -> None:
    assert step_bytes(facts(WeightBytes(dense=1000))) is None
    untold = coder().model_copy(update={"active_experts": None})
    assert step_bytes(untold) is None
    assert mtp_draft_bytes(untold.model_copy(update={"bytes": WeightBytes(experts=10, draft=10)})) is None
    assert model_draft_bytes(untold, coder()) is None


def test_the_most_steps_a_second_count_the_weights_alone_and_what_drafting_reads() -> None:
    """Times the acceptance length they are a ceiling; without a term there is none."""
    target = coder()
    active = target.active_bytes()
    assert active is not None
    plain = most_steps_s({"target": target}, None)
    assert plain == pytest.approx(273e9 / active)
    assert most_steps_s({"target": target}, None, nodes=2) == pytest.approx(2 * 273e9 / active)
    mtp = facts(WeightBytes(dense=9_000_000_000, head=1_000_000_000, draft=400_000_000), target.kv[0])
    assert most_steps_s({"target": mtp}, "mtp k=2") == pytest.approx(273e9 / 12.8e9)
    drafted = most_steps_s({"target": target, "drafter": coder()}, "eagle3 k=2")
    assert plain is not None
    assert drafted is not None
    assert drafted < plain
    assert most_steps_s({"target": target}, "eagle3 k=2") is None
    assert most_steps_s({"target": target, "drafter": Unread(reason="absent")}, "eagle3 k=2") is None
    assert most_steps_s({}, None) is None
