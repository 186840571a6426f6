"""Profiles found by a client's model name, and rows of a list."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkdash import catalog
from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.catalog.catalog import with_replicas
from sparkdash.engines.registry import adapter
from sparkdash.errors import AdmissionError

Loaded = Callable[[str], Catalog]


@pytest.mark.parametrize("name", [
    "tiny", "small", "openai/tiny", "hub/owner/small", "Tiny", "OpenAI/TINY", "owner/Small", "tiny:latest",
    "hub/SMALL:latest", "Tiny:high",
])  # fmt: skip
def test_a_profile_is_found_by_name_or_alias_in_any_case(name: str, loaded: Loaded, good: str) -> None:
    """Clients write owner/name, the hub's ids are written in both cases, and Ollama's clients write a tag behind."""
    assert loaded(good + "modes: {high: {reasoning_effort: high}}\n").find(name).name == "tiny"


def test_a_profile_that_repeats_its_own_name_as_an_alias_has_it_once(loaded: Loaded, good: str) -> None:
    found = loaded(good.replace("[small]", "[tiny, small]"))
    assert (found.problems, found.names()) == ((), ("tiny", "small"))


def test_where_the_case_is_all_that_differs_it_must_be_right(loaded: Loaded, good: str) -> None:
    """No guess between two profiles."""
    found = loaded(good + "variants: {fast: {}, Fast: {}}\n")
    assert [found.find(name).name for name in ("tiny/fast", "tiny/Fast", "TINY")] == ["tiny/fast", "tiny/Fast", "tiny"]
    with pytest.raises(AdmissionError):
        found.find("tiny/FAST")


def test_a_variant_is_found_by_its_full_name_only(loaded: Loaded, good: str) -> None:
    """`fast` alone could be anybody's."""
    found = loaded(good + "variants: {fast: {}}\n")
    assert found.find("tiny/fast").name == found.find("hub/openai/tiny/fast").name == "tiny/fast"
    with pytest.raises(AdmissionError):
        found.find("fast")


@pytest.mark.parametrize("name", ["tiny:high", "small:high", "openai/tiny:high", "hub/owner/small:low"])
def test_a_mode_is_found_with_its_profile(name: str, loaded: Loaded, good: str) -> None:
    """After exact names and aliases, which may hold a colon themselves; a mode that is not there is told with those that are."""
    found = loaded(good + "modes: {high: {reasoning_effort: high}, low: {reasoning_effort: low}}\n")
    assert found.find(name).name == "tiny"
    with pytest.raises(AdmissionError) as caught:
        found.find("tiny:higher")
    assert caught.value.hint == "Modes of tiny: high, low."
    with pytest.raises(AdmissionError):
        loaded(good).find(name)


def test_nearest_never_leads_to_a_profile_that_can_neither_run_nor_be_built(loaded: Loaded) -> None:
    """Private source, and the next one leads back; an image of no registry may be here, built by hand."""
    lost = "image: localhost/x:%d, build: {unavailable: its source is private}"
    variants = [f"a: {{{lost % 1}, nearest: b}}", f"b: {{{lost % 2}, nearest: c}}", "c: {cannot_run: no, nearest: a}"]
    variants += ["d: {cannot_run: no, nearest: e}", "e: {image: 'localhost/mine:1', nearest: a}"]
    text = "profile: x\nengine: vllm\nimage: docker.io/a/b:1\nmodels: {target: {path: /m}}\n"
    text += "args: {gpu-memory-utilization: 0.8}\n"
    found = loaded(f"{text}variants: {{{', '.join(variants)}}}\n")
    assert found.problems == ()
    told = {one.variant: one.nearest for one in found.profiles.values() if one.variant}
    assert told == {"a": None, "b": None, "c": None, "d": "x/e", "e": None}


def test_replicas_are_profiles_for_one_node_each_and_follow_the_nodes(loaded: Loaded, good: str) -> None:
    read = loaded(good + "replicas: 3\nvariants: {fast: {replicas: 2}, alone: {replicas: 1}}\n")
    boxes = ("local", "b", "c", "d")
    found = with_replicas(read, boxes)
    assert {name: each.node for name, each in found.profiles.items()} == {
        "tiny": "local",
        "tiny@b": "b",
        "tiny@c": "c",
        "tiny/fast": "local",
        "tiny/fast@b": "b",
        "tiny/alone": None,
    }
    assert with_replicas(found, boxes) == found
    assert list(with_replicas(found, boxes[:2]).profiles) == [
        "tiny",
        "tiny@b",
        "tiny/fast",
        "tiny/fast@b",
        "tiny/alone",
    ]
    assert with_replicas(read, boxes[:1]) is read
    assert found.find("small").name == found.find("tiny").name == "tiny"
    assert {found.find(name).family for name in ("tiny@c", "tiny/fast@b")} == {"tiny"}


def test_a_hint_names_families_and_not_each_variant(loaded: Loaded, good: str) -> None:
    """A chat client shows it in one line."""
    found = loaded(good + "variants: {a: {}, b: {}}\n")
    with pytest.raises(AdmissionError) as caught:
        found.find("zzz")
    assert caught.value.hint == "Known: tiny and more; `sparkdash profiles` lists them all."


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("tinny", "Did you mean tiny?"), ("openai/SMAL", "Did you mean small?"), ("zzz", "Known: tiny.")],
)
def test_an_unknown_model_gets_the_nearest_names(asked: str, hint: str, loaded: Loaded, good: str) -> None:
    with pytest.raises(AdmissionError) as caught:
        loaded(good).find(asked)
    assert (caught.value.code, caught.value.status, caught.value.hint) == ("model_not_found", 404, hint)
    assert repr(asked) in caught.value.message


def test_an_empty_catalog_says_so() -> None:
    with pytest.raises(AdmissionError) as caught:
        Catalog().find("any")
    assert caught.value.hint == "The catalog is empty."


def test_the_best_decode_rate_is_shown_before_any_whole_request_rate(loaded: Loaded, good: str) -> None:
    """The note names workload and document, and says when prefill is in the rate."""
    rows = "published: [{workload: a, e2e_tok_s: 90, source: s.txt}, {workload: b, decode_tok_s: 50, source: t.txt}]\n"
    profile = loaded(good + rows).profiles["tiny"]
    found = catalog.summarize(profile, adapter(profile.engine))
    assert (found.published_decode_tok_s, found.published_note) == (50, "b (t.txt)")
    whole = profile.model_copy(update={"published": profile.published[:1]})
    found = catalog.summarize(whole, adapter(whole.engine))
    assert (found.published_decode_tok_s, found.published_note) == (90, "a (s.txt), whole request with prefill")


def test_the_sum_of_memory_is_known_only_when_each_term_is(loaded: Loaded, good: str) -> None:
    part = loaded(good + "memory: {weights_gib: 1, kv_gib: 1}\n").profiles["tiny"]
    assert catalog.summarize(part, adapter(part.engine)).needs_bytes is None
    whole = loaded(good + "memory: {weights_gib: 1, kv_gib: 1, overhead_gib: 0.5}\n").profiles["tiny"]
    assert catalog.summarize(whole, adapter(whole.engine)).needs_bytes == int(2.5 * 2**30)


@pytest.mark.parametrize(("can", "sees"), [("[vision, tools]", True), ("[]", False), ("null", None)])
def test_what_the_owner_says_of_an_attached_model_goes_before_what_is_known(
    can: str, sees: bool | None, loaded: Loaded
) -> None:
    profile = loaded(f"profile: far\nengine: openai\nurl: http://127.0.0.1:9\ncan: {can}\n").profiles["far"]
    assert catalog.summarize(profile, adapter(profile.engine)).sees is sees


@pytest.mark.parametrize("name", ["a/" * 90_000, "/" * 90_000 + "tiny", "x" * 1_000_000, "tiny:" * 90_000])
def test_a_name_of_any_size_costs_no_more_than_its_length(name: str, loaded: Loaded, good: str) -> None:
    """90,000 slashes once took 100 s and 5.5 GB: every suffix was a name to be tried."""
    found = loaded(good)
    began = time.process_time()
    with pytest.raises(AdmissionError) as caught:
        found.find(name)
    assert time.process_time() - began < 1
    assert len(caught.value.text()) < 1000


def test_a_name_as_long_as_may_be_is_looked_up_in_a_few_steps(loaded: Loaded, good: str) -> None:
    """Slashes beyond those of any known name are passed over; what follows them is found."""
    found = loaded(good)
    assert found.find("a/" * 254 + "tiny").name == "tiny"
    began = time.process_time()
    for _ in range(100):
        with pytest.raises(AdmissionError):
            found.find("a/" * 256)
    assert time.process_time() - began < 1


def test_profiles_are_listed_as_people_count(write: Callable[..., Path], good: str) -> None:
    """model-2 before model-10, whichever folder each is in: all lists, /v1/models too, have the catalog's order."""

    def named(name: str) -> str:
        return good.replace("profile: tiny", f"profile: {name}").replace("serves: [small]", "serves: []")

    shipped = write("shipped", **{name: named(name) for name in ("model-10", "model-3")})
    own = write("own", **{name: named(name) for name in ("model-2", "model-1", "model-100")})
    found = catalog.load_catalog([shipped, own])
    assert list(found.profiles) == ["model-1", "model-2", "model-3", "model-10", "model-100"]
    with pytest.raises(AdmissionError) as refused:
        found.find("zzzz")
    assert refused.value.hint == "Known: model-1, model-2, model-3, model-10, model-100."


def test_a_profile_whose_file_was_left_out_is_told_so() -> None:
    problems = tuple(
        ProfileProblem(f"/p/{stem}.yaml", 3, "engine", "no such engine") for stem in ("east", "east", "west")
    )
    with pytest.raises(AdmissionError) as caught:
        Catalog(problems=problems).find("east/fast")
    assert str(caught.value.message) == "The file of profile 'east/fast' was left out: it has 2 mistakes."
    assert (caught.value.code, caught.value.status) == ("model_not_found", 404)
    assert caught.value.hint == "`sparkdash profiles check` shows each with its line."


def test_a_summary_marks_the_simulated(loaded: Loaded) -> None:
    profile = loaded("profile: fake\nengine: sim\nsim: {acceptance: [0.8, 0.6]}\ncontext: 4096\n").profiles["fake"]
    found = catalog.summarize(profile, adapter(profile.engine))
    assert (found.simulated, found.speculation, found.context) == (True, "simulated k=2", 4096)
