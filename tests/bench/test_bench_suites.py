"""Suites and sweeps: what is shipped, what an owner writes or asks for, and what is said of a mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkdash import paths
from sparkdash.bench.plan import suites, sweep
from sparkdash.bench.run import Arm, CellKey, Kind, Mode
from sparkdash.catalog import load_catalog, yaml12
from sparkdash.domain.profile import EngineKind, ModelRef, Profile
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.rules import redact_profile

GOOD = """\
suite: mine
version: 1
about: words
cells:
  - {context: [0, 512], output: 32}
"""


def write(text: str, folder: Path, name: str = "mine.yaml") -> Path:
    place = folder / "config" / "suites"
    place.mkdir(exist_ok=True)
    (place / name).write_text(text)
    return place / name


def test_every_shipped_suite_loads_and_is_named_as_its_file() -> None:
    names = set(suites.suite_files())
    assert {suites.load_suite(name).suite for name in names} == names > {"smoke", "seeds"}


def test_seeds_has_the_published_matrix_and_a_warm_column() -> None:
    cells = suites.load_suite("seeds").planned(Mode.STANDARD)
    cold = {(cell.key.context, cell.key.output) for cell in cells if not cell.key.warm}
    assert cold == {(context, output) for context in (0, 512, 2048, 8192, 16384) for output in (32, 150, 400)}
    assert {cell.reps for cell in cells if not cell.key.warm} == {5}
    assert {cell.key.output for cell in cells if cell.key.warm} == {150}


def test_a_suite_of_the_owners_wins_and_its_hash_is_of_its_meaning(own_folders: Path) -> None:
    write(GOOD, own_folders, "smoke.yaml")
    assert suites.load_suite("smoke").suite == "mine"
    first = suites.read_suite(write(GOOD, own_folders)).hash
    again = "# a remark\nabout: other words\nversion: '1'\nsuite: mine\ncells: [{output: [32], context: [0, 512]}]\n"
    assert suites.read_suite(write(again, own_folders)).hash == first
    assert suites.read_suite(write(GOOD.replace("32", "33"), own_folders)).hash != first


def test_reps_are_the_suites_own_else_what_was_asked_else_the_modes() -> None:
    assert {cell.reps for cell in suites.load_suite("prefill").planned(Mode.SCREEN, reps=2)} == {30}
    assert {cell.reps for cell in suites.load_suite("smoke").planned(Mode.CAREFUL, reps=7)} == {2}
    assert {cell.reps for cell in suites.load_suite("concurrency").planned(Mode.SCREEN)} == {3}
    paired = suites.load_suite("paired").planned(Mode.STANDARD)
    assert [(cell.key.context, cell.reps) for cell in paired] == [(2048, 30), (32768, 30), (131072, 30)]
    for name, kinds in (("math", {Kind.MATH}), ("batch", {Kind.SPEED, Kind.PREFIX})):
        assert {cell.key.kind for cell in suites.load_suite(name).planned(Mode.SCREEN)} == kinds


@pytest.mark.parametrize(("text", "where", "what"), [
    (GOOD.replace("output", "ouput"), ":5", "Did you mean 'output'?"),
    (GOOD.replace("[0, 512]", "[0, 51]"), ":5", "at least 128"),
    (GOOD.replace("output: 32", "output: 0"), ":5", "at least 1"),
    (GOOD.replace("output: 32", "output: 32, text: poem"), ":5", "prose, code, json, chat"),
    (GOOD.replace("output: 32", "output: [32, 32]"), ":4", "listed twice"),
    (GOOD.replace("about: words\n", ""), ":1", "'about' is missing"),
    (GOOD.replace("cells", "lengths: {brief: 33}\ncells"), ":4", "no cell has an output of 33 tokens"),
    (GOOD.replace("cells", "lengths: {a: 32, b: 32}\ncells"), ":4", "32 tokens are called 'a' already"),
    ("suite: mine\n  cells: []\n", ":2", "not valid YAML"),
    (GOOD.replace("suite: mine", "suite: My Suite"), ":1", "pattern"),
])  # fmt: skip
def test_a_mistake_is_told_with_its_line(own_folders: Path, text: str, where: str, what: str) -> None:
    file = write(text, own_folders)
    with pytest.raises(ProfileError) as wrong:
        suites.read_suite(file)
    assert f"{file}{where}" in wrong.value.message
    assert what in wrong.value.message


def test_an_unknown_suite_names_the_nearest() -> None:
    with pytest.raises(AdmissionError, match="no suite 'seed'") as unknown:
        suites.load_suite("seed")
    assert unknown.value.hint == "Did you mean seeds?"
    with pytest.raises(ProfileError, match="cannot be read"):
        suites.load_suite("./nowhere.yaml")


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
