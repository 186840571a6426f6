"""`sparkdash profiles sources`, `search` and `add`, against real git repositories."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from git_collection import GitCollection

from sparkdash import paths
from sparkdash.errors import HostError

Run = Callable[..., Any]


@pytest.fixture
def collection(tmp_path: Path) -> GitCollection:
    """Two recipes and a file that is none."""
    made = GitCollection(tmp_path / "owner" / "recipes")
    made.recipe("recipes/alpha.yaml", "alpha", "a small model")
    made.recipe("recipes/beta.yaml", "beta")
    made.write("README.md", "words")
    made.commit()
    return made


@pytest.fixture
def added(sparkdash: Run, collection: GitCollection) -> GitCollection:
    assert sparkdash("profiles", "sources", "add", str(collection.folder), "--name", "mine").code == 0
    return collection


def own(name: str) -> Path:
    return paths.config_dir() / "profiles" / f"{name}.yaml"


def test_a_source_is_fetched_and_pinned(sparkdash: Run, collection: GitCollection) -> None:
    done = sparkdash("profiles", "sources", "add", str(collection.folder), "--json")
    commit = collection.git("rev-parse", "HEAD")
    assert done.json()["recipes"] == 2
    assert done.json()["source"]["commit"] == commit
    (listed,) = sparkdash("profiles", "sources", "list", "--json").json()
    assert (listed["name"], listed["commit"], listed["fetched"]) == ("recipes", commit, True)


def test_a_second_source_of_that_name_is_refused(sparkdash: Run, added: GitCollection) -> None:
    done = sparkdash("profiles", "sources", "add", str(added.folder), "--name", "mine")
    assert done.code == 2
    assert "There is a source 'mine' already." in done.err
    assert sparkdash("profiles", "sources", "add", str(added.folder), "--name", "../x").code == 2


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://me:hunter2@example.org/r.git", "password or token"),
        ("https://ghp_abcdef@example.org/r.git", "password or token"),
        ("--upload-pack=touch x", "No such option"),
        ("ext::sh -c touch% x", "not the address"),
        ("no-such-name", "not the address"),
        ("/no/such/folder", "cannot be fetched"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_leaves_nothing(sparkdash: Run, address: str, said: str) -> None:
    done = sparkdash("profiles", "sources", "add", address, "--name", "x")
    assert done.code != 0
    assert said in done.err
    assert "hunter2" not in done.err
    assert sparkdash("profiles", "sources", "list", "--json").json() == []
    assert not paths.sources_dir().exists() or not any(paths.sources_dir().iterdir())


def test_search_finds_words_of_a_description(sparkdash: Run, added: GitCollection) -> None:
    assert [one["address"] for one in sparkdash("profiles", "search", "SMALL", "--json").json()] == ["mine/alpha"]
    nothing = sparkdash("profiles", "search", "gamma")
    assert (nothing.code, nothing.out) == (1, "")
    assert "Nothing matches" in nothing.err
    assert "sources add ADDRESS" in nothing.err


def test_a_search_without_sources_says_how_to_add_one(sparkdash: Run) -> None:
    done = sparkdash("profiles", "search", "gemma")
    assert done.code == 2
    assert "sources add" in done.err


def test_a_recipe_becomes_a_profile_that_names_its_origin(sparkdash: Run, added: GitCollection) -> None:
    done = sparkdash("profiles", "add", "mine/alpha")
    assert done.code == 0
    assert "dropped: --host" in done.err
    commit = added.git("rev-parse", "HEAD")
    assert (
        own("alpha")
        .read_text()
        .startswith(f"# Imported from mine: recipes/alpha.yaml at {commit} (a sparkrun recipe).\n")
    )
    assert sparkdash("profiles", "show", "alpha", "--json").json()["args"] == {"max-model-len": 4096}


def test_dry_run_prints_and_writes_nothing(sparkdash: Run, added: GitCollection) -> None:
    shown = sparkdash("profiles", "add", "mine/alpha", "--dry-run").out
    assert not own("alpha").exists()
    sparkdash("profiles", "add", "mine/alpha")
    assert own("alpha").read_text() == shown


def test_flags_that_the_engine_does_not_have_are_named(sparkdash: Run, collection: GitCollection) -> None:
    recipe = "recipe_version: '2'\nmodel: org/m\ncontainer: vllm/vllm-openai:v0.27.1\n"
    collection.write("recipes/gamma.yaml", f"{recipe}command: vllm serve org/m --max-modle-len 4096\n")
    collection.commit()
    assert sparkdash("profiles", "sources", "add", str(collection.folder), "--name", "mine").code == 0
    done = sparkdash("profiles", "add", "mine/gamma", "--dry-run")
    assert "args.max-modle-len: vLLM 0.27 has no such flag. Did you mean max-model-len? [unknown-flag]" in done.err
    (told,) = sparkdash("profiles", "add", "mine/gamma", "--dry-run", "--json").json()["findings"]
    assert told["code"] == "unknown-flag"


def test_an_unknown_recipe_is_answered_with_the_nearest(sparkdash: Run, added: GitCollection) -> None:
    assert "Nearest: alpha." in sparkdash("profiles", "add", "mine/alpa").err
    assert "Known: mine." in sparkdash("profiles", "add", "yours/alpha").err


def test_a_profile_that_was_edited_is_not_replaced_unasked(sparkdash: Run, added: GitCollection) -> None:
    sparkdash("profiles", "add", "mine/alpha")
    own("alpha").write_text(own("alpha").read_text().replace("4096", "8192"))
    refused = sparkdash("profiles", "add", "mine/alpha")
    assert refused.code == 2
    assert "-  max-model-len: 8192\n+  max-model-len: 4096" in refused.err
    assert "8192" in own("alpha").read_text()
    assert sparkdash("profiles", "add", "mine/alpha", "--yes").code == 0
    assert "4096" in own("alpha").read_text()


def test_a_profile_of_sparkdash_is_copied_as_it_is(sparkdash: Run, collection: GitCollection) -> None:
    text = "# kept\nprofile: ours\nengine: vllm\nimage: img:1\nmodels: {target: {hf: a/b}}\n"
    collection.write("ours.yaml", text)
    collection.write("bad.yaml", text.replace("ours", "../../bad"))
    collection.commit()
    sparkdash("profiles", "sources", "add", str(collection.folder), "--name", "mine")
    assert sparkdash("profiles", "add", "mine/ours").code == 0
    assert own("ours").read_text().partition("\n")[2] == text
    assert sparkdash("profiles", "add", "mine/ours", "--name", "x").code == 2
    assert "cannot be a file" in sparkdash("profiles", "add", "mine/bad").err


def test_an_update_shows_changes_and_waits_for_consent(sparkdash: Run, added: GitCollection) -> None:
    sparkdash("profiles", "add", "mine/alpha")
    added.recipe("recipes/alpha.yaml", "alpha", "a larger model")
    added.recipe("recipes/gamma.yaml", "gamma")
    (added.folder / "recipes/beta.yaml").unlink()
    newest = added.commit()
    asked = sparkdash("profiles", "sources", "update")
    assert asked.code == 2
    assert "-description: a small model\n    +description: a larger model" in asked.out
    assert "added    recipes/gamma.yaml" in asked.out
    assert "removed  recipes/beta.yaml" in asked.out
    assert "Your profile alpha.yaml was made from a recipe that changed" in asked.err
    assert len(sparkdash("profiles", "search", "small", "--json").json()) == 1
    (told,) = sparkdash("profiles", "sources", "update", "mine", "--yes", "--json").json()
    assert (told["taken"], told["after"], told["profiles"]) == (True, newest, ["alpha.yaml"])
    assert len(sparkdash("profiles", "search", "larger", "--json").json()) == 1


def test_an_update_without_news_says_so(sparkdash: Run, added: GitCollection) -> None:
    assert "nothing new" in sparkdash("profiles", "sources", "update").out
    added.folder.rename(added.folder.with_name("gone"))
    away = sparkdash("profiles", "sources", "update")
    assert away.code == HostError.exit_code
    assert "cannot be fetched" in away.err
    assert len(sparkdash("profiles", "search", "alpha", "--json").json()) == 1


def test_a_rewritten_history_is_followed(sparkdash: Run, added: GitCollection) -> None:
    added.recipe("recipes/alpha.yaml", "alpha", "rewritten")
    added.git("commit", "--quiet", "--all", "--amend", "--message", "again")
    assert sparkdash("profiles", "sources", "update").code == 2
    assert len(sparkdash("profiles", "search", "small", "--json").json()) == 1
    assert sparkdash("profiles", "sources", "update", "--yes").code == 0
    assert len(sparkdash("profiles", "search", "rewritten", "--json").json()) == 1


def test_a_deleted_cache_is_fetched_again_at_the_pinned_commit(sparkdash: Run, added: GitCollection) -> None:
    added.git("config", "uploadpack.allowAnySHA1InWant", "true")
    added.recipe("recipes/alpha.yaml", "alpha", "newer")
    added.commit()
    shutil.rmtree(paths.sources_dir())
    assert len(sparkdash("profiles", "search", "small", "--json").json()) == 1


def test_nothing_of_a_source_is_run_or_followed(sparkdash: Run, collection: GitCollection, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    hook = collection.folder / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    (collection.folder / "recipes/link.yaml").symlink_to("/etc/passwd")
    collection.write("recipes/huge.yaml", "recipe_version: 1\nmodel: x\n" + "#" * 2_000_000)
    (collection.folder / "recipes/binary.yaml").write_bytes(b"recipe_version: \xff\xfe")
    collection.write(".gitattributes", "* filter=evil\n")
    collection.commit()
    done = sparkdash("profiles", "sources", "add", str(collection.folder), "--name", "mine", "--json")
    assert done.json()["recipes"] == 2
    assert not ran.exists()


def test_a_removed_source_leaves_its_profiles(sparkdash: Run, added: GitCollection) -> None:
    sparkdash("profiles", "add", "mine/alpha")
    assert sparkdash("profiles", "sources", "remove", "mine").code == 0
    assert own("alpha").exists()
    assert not any(paths.sources_dir().iterdir())
    assert sparkdash("profiles", "sources", "remove", "mine").code == 2


def test_a_list_that_somebody_broke_is_named(sparkdash: Run, added: GitCollection) -> None:
    path = paths.config_dir() / "sources.toml"
    before = path.read_text()
    path.write_text(before.replace('commit = "', 'commit = "x'))
    done = sparkdash("profiles", "sources", "list")
    assert done.code == 2
    assert "commit" in done.err
    path.write_text(before)
    assert len(sparkdash("profiles", "sources", "list", "--json").json()) == 1
