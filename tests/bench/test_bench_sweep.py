"""A sweep: one parameter at several values, and nothing else that differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.bench.plan import sweep
from sparkdash.catalog import load_catalog, yaml_writer
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.errors import AdmissionError
from sparkdash.rules.secret import redact_profile

PROFILE = Profile(
    name="coder/eagle3",
    engine=EngineKind.VLLM,
    image="localhost/vllm:1",
    models={"target": ModelRef(hf="owner/model"), "drafter": ModelRef(hf="owner/drafter")},
    serves=("coder-fast",),
    args={
        "max-num-seqs": 8,
        "speculative-config": {"method": "eagle3", "model": "{drafter}", "num_speculative_tokens": 1},
    },
    cannot_run=None,
)


def swept(text: str, folder: Path) -> dict[str, Profile]:
    """The profiles that the sweep's file makes, by their arm."""
    asked = sweep.parse_sweep(text)
    (folder / "sweep.yaml").write_text(yaml_writer.dump(asked.document(PROFILE)))
    found = load_catalog([folder])
    assert found.problems == ()
    return {arm.name: found.profiles[arm.profile] for arm in asked.arms(PROFILE)}


def test_a_parameter_inside_a_mapping(tmp_path: Path) -> None:
    """Where the profile has it; none drafted is no speculation at all."""
    arms = swept("num_speculative_tokens=0..2", tmp_path)
    assert list(arms) == [f"num_speculative_tokens={n}" for n in (0, 1, 2)]
    configs = [profile.args.get("speculative-config") for profile in arms.values()]
    assert configs == [None, *({"method": "eagle3", "model": "{drafter}", "num_speculative_tokens": n} for n in (1, 2))]
    assert arms["num_speculative_tokens=1"].fingerprint == PROFILE.model_copy(update={"serves": ()}).fingerprint
    assert {profile.serves for profile in arms.values()} == {()}


def test_a_flag_by_any_spelling_and_a_new_one(tmp_path: Path) -> None:
    """max_num_seqs is max-num-seqs; what the profile lacks is added."""
    assert [profile.args["max-num-seqs"] for profile in swept("max_num_seqs=4,16", tmp_path).values()] == [4, 16]
    (drafts, _) = swept("num-speculative-tokens=3,4", tmp_path).values()
    assert drafts.args["speculative-config"]["num_speculative_tokens"] == 3
    assert [p.args["block-size"] for p in swept("block-size=16,32", tmp_path).values()] == [16, 32]
    assert [p.args["enforce-eager"] for p in swept("enforce-eager=true,false", tmp_path).values()] == [True, False]


@pytest.mark.parametrize("text", ["x", "x=", "x=1", "x=1,1", "=1,2", "x=0..99"])
def test_what_is_no_sweep(text: str) -> None:
    """It says how one is written."""
    with pytest.raises(AdmissionError, match="no sweep"):
        sweep.parse_sweep(text)


def test_a_profile_whose_secret_is_masked_is_not_swept() -> None:
    """Its engines would be measured with the mask in the secret's place."""
    shown = redact_profile(
        PROFILE.replace(env={"SERVICE_API_KEY": "correct-horse"}, silence={"secret-literal": "a test key"})
    )
    with pytest.raises(AdmissionError, match="has a secret in its file") as caught:
        sweep.parse_sweep("max-num-seqs=4,16").document(shown)
    assert caught.value.code == "sweep_invalid"
