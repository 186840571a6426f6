"""Layout of collections: which files are recipes, their names, and search."""

from __future__ import annotations

import threading

from sparkdash import sources
from sparkdash.sources import Source, put_source, read_sources

RECIPE = "recipe_version: '1'\nmodel: org/alpha\ndescription: the  quick\ncommand: vllm serve {model}\n"


def test_a_manifest_names_the_folders_of_recipes() -> None:
    """Entries without a folder, and manifests that are no YAML, name none."""
    text = "registries:\n  - {name: a, recipes: one}\n  - {name: b, recipes: /two/}\n  - {name: c}\n  - 7\n"
    assert sources.recipe_folders(text) == ("one/", "two/")
    assert sources.recipe_folders("{") == ()
    assert sources.recipe_folders(None) == ()


def test_sources_that_are_added_at_the_same_time_lose_none() -> None:
    made = [Source(name=f"s{i}", url="/x", commit="0" * 40, updated_at="2026-11-23") for i in range(12)]
    threads = [threading.Thread(target=put_source, args=(source,)) for source in made]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert sorted(one.name for one in read_sources()) == sorted(one.name for one in made)


def test_hidden_files_and_other_folders_are_no_candidates() -> None:
    paths = ["a.yaml", "one/b.yml", ".github/c.yaml", "one/.d.yaml", "one/e.sh", "oneself/f.yaml"]
    assert sources.candidate_paths(paths, ()) == ["a.yaml", "one/b.yml", "oneself/f.yaml"]
    assert sources.candidate_paths(paths, ("one/",)) == ["one/b.yml"]


def test_a_path_with_control_characters_is_no_candidate() -> None:
    assert sources.candidate_paths(["a\nb.yaml", "a\x1b[31m.yaml", "ä b.yaml"], ()) == ["ä b.yaml"]


def test_a_name_has_as_many_folders_as_make_it_unique() -> None:
    """A path that ends another one keeps its own name."""
    names = sources.short_names(["r/a.yaml", "r/2x/b.yaml", "r/4x/b.yaml", "b.yaml"])
    assert names == {"r/a.yaml": "a", "r/2x/b.yaml": "2x/b", "r/4x/b.yaml": "4x/b", "b.yaml": "b"}


def test_five_thousand_files_of_one_stem_have_names_of_their_own() -> None:
    names = sources.short_names([f"x/{number}/same.yaml" for number in range(5000)])
    assert names["x/7/same.yaml"] == "7/same"
    assert len(set(names.values())) == 5000


def test_recipes_and_own_profiles_are_told_from_other_files() -> None:
    found = sources.read_entries(
        "src",
        {
            "r/one.yaml": RECIPE,
            "r/own.yaml": "profile: own\nabout: ours\nmodels: {target: {hf: org/beta}}\nnodes: 2\n",
            "r/ci.yaml": "on: push\njobs: {}\n",
            "r/broken.yaml": "recipe_version: 1\nmodel: [\n",
            "r/two.yaml": RECIPE + "cluster_only: true\n",
            "r/solo.yaml": RECIPE + "solo_only: true\n",
        },
    )
    assert [(one.address, one.model, one.about, one.nodes, one.own) for one in found] == [
        ("src/broken", None, None, None, False),
        ("src/one", "org/alpha", "the quick", None, False),
        ("src/own", "org/beta", "ours", 2, True),
        ("src/solo", "org/alpha", "the quick", 1, False),
        ("src/two", "org/alpha", "the quick", 2, False),
    ]


def test_every_word_of_a_search_must_occur() -> None:
    found = sources.read_entries("src", {"r/one.yaml": RECIPE, "r/two.yaml": RECIPE.replace("alpha", "beta")})
    assert [one.name for one in sources.matching(found, ["ORG", "beta"])] == ["two"]
    assert [one.name for one in sources.matching(found, ["src"])] == ["one", "two"]
    assert sources.matching(found, ["alpha", "beta"]) == []
