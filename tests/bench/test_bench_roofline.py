"""The decode roofline against what published configurations come to, worked out from their shapes."""

from __future__ import annotations

import pytest

from sparkdash.domain.weights import Attention, KvLayers, Unread, WeightBytes, WeightFacts
from sparkdash.engines.roofline import (
    decode_step,
    experts_hit,
    kv_bits,
    model_draft_bytes,
    most_steps_s,
    mtp_draft_bytes,
    roofline,
)

NVFP4, MXFP4, BF16 = 4.5 / 8, 4.25 / 8, 2.0
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


def gpt_oss() -> WeightFacts:
    """gpt-oss-120b as shipped: experts MXFP4, attention and unembedding BF16; half of its 36 layers see 128 tokens."""
    attention = 36 * (2880 * 4096 * 2 + 2 * 2880 * 512)
    expert = 3 * 2880 * 2880
    full = KvLayers(kind=Attention.FULL, layers=18, key_elements=512, value_elements=512)
    window = KvLayers(kind=Attention.SLIDING, layers=18, key_elements=512, value_elements=512, window=128)
    return facts(
        WeightBytes(
            dense=round(attention * BF16),
            experts=round(36 * 128 * expert * MXFP4),
            embedding=round(201088 * 2880 * BF16),
            head=round(201088 * 2880 * BF16),
        ),
        full,
        window,
        experts=128,
        active_experts=4,
    )


def test_a_mixture_of_experts() -> None:
    """2.19 GB a token, a ceiling of 125 tok/s; the measured 65.0 is 52 % of it."""
    found = decode_step(coder(), context=0, key_bits=8)
    assert found is not None
    assert found.total == pytest.approx(2.19e9, rel=0.01)
    line = roofline(found)
    assert line is not None
    assert line.peak_tok_s == pytest.approx(125, rel=0.01)
    assert line.share(65.0) == pytest.approx(0.52, abs=0.01)


def test_the_cache_grows_with_the_context() -> None:
    """12,624 tokens in FP8 add 0.62 GB; in BF16 twice that; other terms stay."""
    short, long, wide = (
        decode_step(coder(), context=tokens, key_bits=bits) for tokens, bits in ((0, 8), (12_624, 8), (12_624, 16))
    )
    assert short is not None
    assert long is not None
    assert wide is not None
    assert long.total == pytest.approx(2.81e9, rel=0.01)
    assert (short.kv, long.kv, wide.kv) == (0, 12_624 * 48 * 1024, 2 * 12_624 * 48 * 1024)
    assert long.model_copy(update={"kv": 0}) == short


@pytest.mark.parametrize(("width", "hit", "ratio"), [(2, 15.5, 1.44), (3, 22.5, 1.85)])
def test_verifying_more_positions_hits_more_experts(width: int, hit: float, ratio: float) -> None:
    """So speculation must accept 1.44 tokens a step to pay at all at a verify width of two."""
    plain, verify = decode_step(coder(), context=0), decode_step(coder(), context=0, speculated=width - 1)
    share = experts_hit(coder(), width)
    assert plain is not None
    assert verify is not None
    assert share is not None
    assert 128 * share == pytest.approx(hit, abs=0.05)
    assert verify.total / plain.total == pytest.approx(ratio, abs=0.01)
    assert (verify.dense, verify.head) == (plain.dense, plain.head)


def test_sequences_share_the_weights() -> None:
    """Four at once hit 29.1 experts and keep four caches; their rates add up."""
    one, four = decode_step(coder(), context=1000), decode_step(coder(), context=1000, sequences=4)
    assert one is not None
    assert four is not None
    assert four.kv == 4 * one.kv
    assert four.experts / one.experts == pytest.approx(29.1 / 8, abs=0.01)
    single, together = roofline(one), roofline(four, sequences=4)
    assert single is not None
    assert together is not None
    assert single.peak_tok_s < together.peak_tok_s < 4 * single.peak_tok_s


def test_a_rate_above_the_ceiling_is_flagged() -> None:
    """57 to 60 tok/s of gpt-oss cannot be with its attention read as BF16."""
    found = decode_step(gpt_oss(), context=0)
    line = roofline(found) if found else None
    assert line is not None
    assert line.peak_tok_s == pytest.approx(54.5, rel=0.01)
    assert (line.exceeded(54), line.exceeded(57)) == (False, True)


def test_windowed_layers_stop_at_their_window() -> None:
    """131,072 tokens in FP8 are 2.42 GB: the full layers alone, and 128 tokens of the others."""
    found = decode_step(gpt_oss(), context=131_072, key_bits=8)
    assert found is not None
    assert found.kv == 18 * 1024 * (131_072 + 128)


def test_states_are_read_and_written() -> None:
    linear = KvLayers(kind=Attention.LINEAR, layers=48, state_bytes=3_000_000)
    full = KvLayers(kind=Attention.FULL, layers=16, key_elements=1024, value_elements=1024)
    hybrid = facts(WeightBytes(dense=16_000_000_000), linear, full)
    found = decode_step(hybrid, context=2048, sequences=2)
    assert found is not None
    assert found.states == 2 * 2 * 48 * 3_000_000
    assert found.kv == 2 * 2048 * 16 * 2048 * 2


def test_speculation_multiplies_the_ceiling_and_pays_for_its_drafts() -> None:
    """A dense model at acceptance length 2.44 with two drafts, each of which reads the drafter and its head."""
    dense = facts(
        WeightBytes(dense=9_000_000_000, head=1_000_000_000, draft=400_000_000),
        KvLayers(kind=Attention.FULL, layers=1, key_elements=1, value_elements=1),
    )
    each = mtp_draft_bytes(dense)
    assert each == 1_400_000_000
    found = decode_step(dense, context=0, speculated=2, draft_bytes=each)
    assert found is not None
    line = roofline(found, acceptance_length=2.44)
    assert line is not None
    assert line.peak_tok_s == pytest.approx(273 * 2.44 / 12.8)
    assert roofline(found, acceptance_length=None) is None


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


def test_two_nodes_have_twice_the_bandwidth() -> None:
    found = decode_step(coder(), context=0)
    assert found is not None
    one, two = roofline(found), roofline(found, nodes=2)
    assert one is not None
    assert two is not None
    assert two.peak_tok_s == pytest.approx(2 * one.peak_tok_s)


def test_what_is_not_known_leaves_no_ceiling() -> None:
    assert decode_step(facts(WeightBytes(dense=1000)), context=10) is None
    untold = coder().model_copy(update={"active_experts": None})
    assert decode_step(untold, context=10) is None
    assert mtp_draft_bytes(untold.model_copy(update={"bytes": WeightBytes(experts=10, draft=10)})) is None
    assert model_draft_bytes(untold, coder()) is None


def test_a_plain_step_is_what_the_checkpoint_says_of_itself() -> None:
    """One sequence, nothing speculated, no linear layers: the active weights and the whole cache, once each."""
    for one in (coder(), gpt_oss()):
        found = decode_step(one, context=4096)
        assert found is not None
        weights, cache = one.active_bytes(), one.kv_bytes(4096, 1)
        assert weights is not None
        assert cache is not None
        assert found.total == pytest.approx(weights + cache, abs=1)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("fp8", 8), ("fp8_e4m3", 8), ("torch.bfloat16", 16), ("float16", 16), ("q8_0", 8.5), ("auto", None), (None, None)],
)
def test_bits_of_a_resolved_cache(dtype: str | None, bits: float | None) -> None:
    assert kv_bits(dtype) == bits


def test_the_most_steps_a_second_count_the_weights_alone_and_what_drafting_reads() -> None:
    """Times the acceptance length they are a ceiling; without a term there is none."""
    target = gpt_oss()
    active = target.active_bytes()
    assert active is not None
    plain = most_steps_s({"target": target}, None)
    assert plain == pytest.approx(273e9 / active)
    assert most_steps_s({"target": target}, None, nodes=2) == pytest.approx(2 * 273e9 / active)
    drafted = most_steps_s({"target": target, "drafter": coder()}, "eagle3 k=2")
    assert plain is not None
    assert drafted is not None
    assert drafted < plain
    assert most_steps_s({"target": target}, "eagle3 k=2") is None
    assert most_steps_s({"target": target, "drafter": Unread(reason="absent")}, "eagle3 k=2") is None
    assert most_steps_s({}, None) is None
