"""A sweep: one parameter at several values, and nothing else that differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkdash import paths
from sparkdash.bench.plan import sweep
from sparkdash.bench.run import Arm, CellKey
from sparkdash.catalog import load_catalog, yaml12
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.errors import AdmissionError
from sparkdash.rules import redact_profile

FAMILY = "sweep-a-max-num-seqs"
TEXT = f"profile: {FAMILY}\nengine: sim\n"
ARMS = [Arm(name="1", profile=f"{FAMILY}/1", parameters={"max-num-seqs": "1"}, swept="a")]


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_that_was_begun_wants_its_profiles_until_it_is_whole(
    recorded: Callable[..., Path], *, ended: bool
) -> None:
    rates = {"1": {CellKey(suite="seeds", context=0, output=32): 60.0}}
    changes = {"ended_at": "2026-11-21T21:00:00Z"} if ended else {}
    recorded(paths.bench_dir(), arms=ARMS, rates=rates, changes=changes)
    assert sweep.is_needed(FAMILY) is not ended


def test_the_file_of_a_sweep_goes_and_may_be_written_anew() -> None:
    file = sweep.write_sweep_file(FAMILY, TEXT)
    assert sweep.write_sweep_file(FAMILY, TEXT) == file
    assert file.read_text().endswith(TEXT)
    assert sweep.delete_sweep_file(FAMILY)
    assert not file.exists()


@pytest.mark.parametrize("name", [FAMILY, "mine"])
def test_the_owners_files_stay(name: str) -> None:
    own = sweep.sweep_file_path(name)
    own.parent.mkdir(parents=True)
    own.write_text(TEXT if name == FAMILY else sweep.HEAD + TEXT)
    assert not sweep.delete_sweep_file(name)
    assert own.exists()
    with pytest.raises(AdmissionError, match="a file of your own"):
        sweep.write_sweep_file(name, TEXT)
    assert TEXT in own.read_text()


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
    (folder / "sweep.yaml").write_text(yaml12.dump(asked.document(PROFILE)))
    found = load_catalog([folder])
    assert found.problems == ()
    return {arm.name: found.profiles[arm.profile] for arm in asked.arms(PROFILE)}


def test_a_parameter_inside_a_mapping(tmp_path: Path) -> None:
    arms = swept("num_speculative_tokens=0..2", tmp_path)
    assert list(arms) == [f"num_speculative_tokens={n}" for n in (0, 1, 2)]
    configs = [profile.args.get("speculative-config") for profile in arms.values()]
    assert configs == [None, *({"method": "eagle3", "model": "{drafter}", "num_speculative_tokens": n} for n in (1, 2))]
    assert arms["num_speculative_tokens=1"].fingerprint == PROFILE.model_copy(update={"serves": ()}).fingerprint
    assert {profile.serves for profile in arms.values()} == {()}


def test_a_flag_by_any_spelling_and_a_new_one(tmp_path: Path) -> None:
    assert [profile.args["max-num-seqs"] for profile in swept("max_num_seqs=4,16", tmp_path).values()] == [4, 16]
    (drafts, _) = swept("num-speculative-tokens=3,4", tmp_path).values()
    assert drafts.args["speculative-config"]["num_speculative_tokens"] == 3
    assert [p.args["block-size"] for p in swept("block-size=16,32", tmp_path).values()] == [16, 32]
    assert [p.args["enforce-eager"] for p in swept("enforce-eager=true,false", tmp_path).values()] == [True, False]


@pytest.mark.parametrize("text", ["x", "x=", "x=1", "x=1,1", "=1,2", "x=0..99"])
def test_what_is_no_sweep(text: str) -> None:
    with pytest.raises(AdmissionError, match="no sweep"):
        sweep.parse_sweep(text)


def test_a_profile_whose_secret_is_masked_is_not_swept() -> None:
    shown = redact_profile(
        PROFILE.replace(env={"SERVICE_API_KEY": "correct-horse"}, silence={"secret-literal": "a test key"})
    )
    with pytest.raises(AdmissionError, match="has a secret in its file") as caught:
        sweep.parse_sweep("max-num-seqs=4,16").document(shown)
    assert caught.value.code == "sweep_invalid"
