"""The profiles that come with sparkdash, and how images are built."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkdash import catalog
from sparkdash.catalog import Catalog
from sparkdash.domain.images import ImageOrigin, image_origin
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import Task
from sparkdash.engines.registry import adapter_of
from sparkdash.paths import shipped_profiles

CATALOG = catalog.load_catalog([shipped_profiles()])
PAGE = r"[^,]+, [^,]+, [a-z-]+(\.[a-z-]+)+/[\w./-]+"
"""Author, title or date, and address."""
REPOSITORY = r"[\w.-]+/[\w.-]+((@[0-9a-f]{7})?, [\w./-]+|#\d+)"
"""Repository with file, and mostly commit; or with the number of a thread."""


def test_every_file_loads_without_problems() -> None:
    assert CATALOG.problems == ()
    assert {"gpt-oss-120b", "qwen3-coder-30b-nvfp4", "qwen3-coder-30b-nvfp4/eagle3", "qwen3.5-122b/mtp-2"} <= set(
        CATALOG.profiles
    )


@pytest.mark.parametrize("profile", CATALOG.profiles.values(), ids=lambda p: p.name)
def test_every_figure_has_its_source_document(profile: Profile) -> None:
    """A published figure names what a reader can open; memory figures name theirs."""
    assert all(re.fullmatch(f"{PAGE}|{REPOSITORY}", row.source) for row in profile.published)
    known = (profile.memory.weights_gib, profile.memory.kv_gib, profile.memory.overhead_gib)
    assert profile.memory.source or not any(known)


@pytest.mark.parametrize("variant", ["mtp-1", "mtp-2"])
def test_what_cannot_run_says_why_and_what_to_use(variant: str) -> None:
    """The coder has no MTP head; EAGLE3 is the nearest, on the image that can be had."""
    profile = CATALOG.profiles[f"qwen3-coder-30b-nvfp4/{variant}"]
    assert "no MTP head" in (profile.cannot_run or "")
    assert profile.nearest == "qwen3-coder-30b-nvfp4/prebuilt-eagle3"


def test_what_has_no_image_cannot_run() -> None:
    """Nothing is invented: where no source names or builds an image, the profile says why it does not start."""
    assert all(profile.cannot_run for profile in CATALOG.profiles.values() if profile.image is None)


def test_the_whole_catalog_loads_in_little_time() -> None:
    """Under 150 ms of CPU here (about 90 measured); ten times that would be a parser gone wrong, not a busy box."""
    before = time.process_time()
    catalog.load_catalog([shipped_profiles()])
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize(("name", "tasks"), [
    ("gpt-oss-20b", {Task.GENERATE}), ("qwen3-vl-embedding-8b", {Task.EMBED, Task.RERANK}),
    ("qwen3-vl-reranker-8b/2b", {Task.EMBED, Task.RERANK}), ("qwen3-asr-1.7b", {Task.TRANSCRIBE}),
    ("qwen3-asr-0.6b", {Task.TRANSCRIBE}), ("kokoro", {Task.SPEAK}), ("voxtral-mini-4b-realtime", set()),
    ("qwen3-vl-30b-a3b", {Task.GENERATE}),
])  # fmt: skip
def test_each_kind_of_model_is_asked_only_for_its_own_work(name: str, tasks: set[Task]) -> None:
    """So that `auto` never means a speech or search model for a chat."""
    profile = CATALOG.profiles[name]
    assert adapter_of(profile).tasks(profile, None) == tasks


def test_every_model_of_today_names_its_source() -> None:
    """Each file names the documents, repositories or pages that its flags are from, in its first lines or at a variant."""
    for file in shipped_profiles().glob("*.yaml"):
        text = file.read_text()
        assert re.search(r"Labs|BLOG|[\w.-]+/[\w.-]+@[0-9a-f]{7}|dgx-spark-playbooks@|README|documentation", text), (
            file.name
        )


COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCE = {"repo": "https://git.example/owner/images", "commit": COMMIT}

Loaded = Callable[..., Catalog]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """Load families given by their name: what each says besides the engine and its model."""

    def load(**families: dict[str, Any]) -> Catalog:
        for name, body in families.items():
            base = {"profile": name, "engine": "vllm", "image": "localhost/a:1", "models": {"target": {"path": "/m"}}}
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(base | body))
        return catalog.load_catalog([tmp_path])

    return load


@pytest.mark.parametrize(("build", "problem"), [
    ({"repo": "https://git.example/a"}, "'repo' and 'commit' go together"),
    ({"commit": COMMIT, "context": "x"}, "'repo' and 'commit' go together"),
    (SOURCE | {"commit": "main"}, "build.commit: must be of the form"),
    ({}, "give 'repo' with 'commit', or 'context', or 'unavailable' with the reason"),
    ({"unavailable": "gone", "context": "x"}, "an 'unavailable' image has no 'repo'"),
    (SOURCE | {"repo": "ext::sh -c x"}, "'repo' must be an https or git address"),
    (SOURCE | {"repo": "--upload-pack=x"}, "'repo' must be an https or git address"),
    (SOURCE | {"repo": "https://me:secret@git.example/a"}, "'repo' has a name or a password in it"),
    (SOURCE | {"context": "../.."}, "leads out of the source"),
    (SOURCE | {"containerfile": "/etc/passwd"}, "build.containerfile: must be of the form"),
    (SOURCE | {"args": {"HF_TOKEN": "x"}}, "the build argument HF_TOKEN looks like a secret"),
    (SOURCE | {"args": {"A B": "x"}}, "build.args.A B"), (SOURCE | {"minutes": 0}, "build.minutes: must be"),
], ids=str)  # fmt: skip
def test_a_mistake_in_a_build_is_told(build: dict[str, Any], problem: str, loaded: Loaded) -> None:
    problems = loaded(a={"build": build}).problems
    assert any(problem in str(one) for one in problems), [*map(str, problems)]


@pytest.mark.parametrize("image", ["ghcr.io/a/b:1", "localhost/a@sha256:" + "0" * 64])
def test_only_an_image_of_this_box_is_built(image: str, loaded: Loaded) -> None:
    """Another name would be looked for in a registry, and a digest is known only afterwards."""
    (problem,) = loaded(a={"image": image, "build": SOURCE}).problems
    assert "is no name for an image that is built here" in str(problem)


def test_a_variant_with_another_image_does_not_inherit_the_build(loaded: Loaded) -> None:
    known = loaded(a={"build": SOURCE, "variants": {"same": {}, "other": {"image": "localhost/b:1"}}}).profiles
    assert known["a/same"].build == known["a"].build
    assert known["a/other"].build is None


def test_profiles_with_the_same_image_share_one_build(loaded: Loaded) -> None:
    known = loaded(a={"build": SOURCE}, b={}).profiles
    assert known["b"].build == known["a"].build
    assert {known["a"].built_by, known["b"].built_by} == {"a"}


def test_two_ways_to_make_one_image_contradict_each_other(loaded: Loaded) -> None:
    (problem,) = loaded(a={"build": SOURCE}, b={"build": SOURCE | {"target": "x"}}).problems
    assert "build: is another than that of a (" in str(problem)


def test_a_way_to_build_an_image_wins_over_the_word_that_there_is_none(loaded: Loaded) -> None:
    """A shipped profile knows no build of it; its owner's own profile does, and all with that image have it."""
    found = loaded(a={"build": {"unavailable": "no source"}}, b={"build": SOURCE}, c={})
    assert found.problems == ()
    assert {one.built_by for one in found.profiles.values()} == {"b"}
    assert {one.build.commit for one in found.profiles.values() if one.build} == {COMMIT}


def test_a_build_changes_nothing_of_the_launch(loaded: Loaded) -> None:
    """An engine that runs is not outdated because somebody wrote down where its image came from."""
    plain = loaded(a={}).profiles["a"].fingerprint
    assert loaded(a={"build": SOURCE}).profiles["a"].fingerprint == plain


def test_every_shipped_image_of_no_registry_says_how_it_is_built_or_why_it_is_not() -> None:
    shipped = catalog.load_catalog([shipped_profiles()]).profiles.values()
    own = [one for one in shipped if (one.image or "").startswith("localhost/")]
    assert own
    assert [one.name for one in own if one.build is None] == []


SOURCE_WORDS = re.compile(r"its source is github\.com/\S+/\S+|could not be found|was not published|is private")


def test_a_shipped_image_is_built_from_a_pinned_source_or_says_where_its_source_is() -> None:
    """Nothing in between: who wants the image can build it, or knows where to look and what is missing."""
    for one in catalog.load_catalog([shipped_profiles()]).profiles.values():
        build = one.build
        if build is None or one.cannot_run:
            continue
        if build.unavailable is not None:
            assert SOURCE_WORDS.search(build.unavailable), f"{one.name}: {build.unavailable}"
            continue
        assert build.licence, one.name
        assert build.source, one.name
        assert build.commit or (shipped_profiles() / (build.context or "") / "Containerfile").is_file(), one.name


def test_who_lacks_image_or_weights_of_a_shipped_profile_is_sent_to_one_that_can_be_had() -> None:
    """On a box just unpacked: by `nearest`, once or twice."""
    shipped = catalog.load_catalog([shipped_profiles()]).profiles

    def can_be_had(one: Profile) -> bool:
        image = one.image is None or image_origin(one.image, one.build) is not ImageOrigin.NONE
        return image and all(ref.hf for ref in one.weights)

    for one in shipped.values():
        if one.cannot_run or can_be_had(one):
            continue
        first = shipped.get(one.nearest or "")
        assert first is not None, f"{one.name} names no `nearest`"
        assert can_be_had(first) or can_be_had(shipped[first.nearest or ""]), f"{one.name} leads to {first.name}"


def test_no_shipped_profile_sends_to_one_that_cannot_run_or_whose_image_nobody_has() -> None:
    """And a box that cannot build is sent to an image that a registry has."""
    shipped = catalog.load_catalog([shipped_profiles()]).profiles
    sent = [(one, shipped[one.nearest]) for one in shipped.values() if one.nearest]
    assert sent
    for one, other in sent:
        assert other.cannot_run is None, one.name
        assert image_origin(other.image or "", other.build) is not ImageOrigin.NONE, one.name
        assert other.build is None or one.build is None or one.cannot_run, one.name
