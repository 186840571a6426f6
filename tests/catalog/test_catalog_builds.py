"""`build:` of a profile: what may stand there, who inherits it, and what is told of mistakes in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkdash import catalog
from sparkdash.catalog import Catalog
from sparkdash.domain.images import ImageOrigin, image_origin
from sparkdash.domain.profile import Profile
from sparkdash.paths import shipped_profiles

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


@pytest.mark.parametrize(
    ("build", "problem"),
    [
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
        (SOURCE | {"args": {"A B": "x"}}, "build.args.A B"),
        (SOURCE | {"minutes": 0}, "build.minutes: must be"),
    ],
    ids=str,
)
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


def test_the_nearest_of_a_shipped_profile_needs_no_build() -> None:
    """A box that cannot build is sent to an image that a registry has."""
    shipped = catalog.load_catalog([shipped_profiles()]).profiles
    for one in shipped.values():
        if one.nearest and one.build is not None and one.cannot_run is None:
            other = shipped[one.nearest]
            assert (other.cannot_run, other.build) == (None, None), one.name
