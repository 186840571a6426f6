"""How a variant grows out of a sister, or out of nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkdash.catalog import Catalog

FAMILY = """\
profile: big
about: the base
engine: vllm
image: localhost/one
models: {target: {path: /models/big}}
serves: [b]
args: {max-model-len: 4096}
variants:
  second-fast: {extends: fast, image: localhost/two}
  third-fast: {extends: second-fast, args: {max-model-len: null}}
  fast:
    args: {spec: {method: eagle3}}
    published: [{workload: w, decode_tok_s: 5, source: s.txt}]
    cannot_run: not yet
  foreign:
    extends: null
    engine: openai
    url: http://localhost:9000
"""


def test_a_variant_may_grow_out_of_a_sister(loaded: Callable[[str], Catalog]) -> None:
    """Over any number of steps, in any order in the file; what is not inherited from a base is not from a sister."""
    profiles = loaded(FAMILY).profiles
    second, third = profiles["big/second-fast"], profiles["big/third-fast"]
    assert (second.image, second.args) == ("localhost/two", {"max-model-len": 4096, "spec": {"method": "eagle3"}})
    assert (third.image, third.args) == ("localhost/two", {"spec": {"method": "eagle3"}})
    assert (second.published, second.cannot_run, second.serves) == ((), None, ())


def test_null_inherits_nothing(loaded: Callable[[str], Catalog]) -> None:
    """A system of another engine keeps its place in the family without the family's flags."""
    foreign = loaded(FAMILY).profiles["big/foreign"]
    assert (foreign.args, foreign.models, foreign.image, foreign.about) == ({}, {}, None, "")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("extends: fast", "extends: fats", "9: variants.second-fast.extends: there is no variant 'fats'"),
        ("extends: fast", "extends: third-fast", "9: variants.second-fast.extends: leads back to itself"),
        ("extends: fast", "extends: [fast]", "9: variants.second-fast.extends: there is no variant"),
        ("image: localhost/two", "image: 2", "9: variants.second-fast.image: must be text"),
        ("engine: openai", "engin: openai", "17: variants.foreign.engin: unknown key"),
        ("profile: big", "profile: big\nextends: fast", "2: extends: unknown key"),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(
    told: Callable[[str], list[str]], old: str, new: str, problem: str
) -> None:
    """A wrong parent, a circle, and mistakes in what is inherited: at the line of the key itself."""
    assert any(line.startswith(problem) for line in told(FAMILY.replace(old, new)))


def test_a_mistake_in_a_sister_is_told_once(told: Callable[[str], list[str]]) -> None:
    """Those that grow out of it do not repeat it."""
    assert told(FAMILY.replace("args: {spec: {method: eagle3}}", "args: {port: 1}")) == [
        "12: variants.fast.args.port: is set by sparkdash. Remove it; give aliases under `serves`."
    ]


def test_what_cannot_run_may_leave_open_what_no_source_tells(loaded: Callable[[str], Catalog]) -> None:
    """Image, model and address are asked of what is started."""
    text = "profile: x\nengine: llamacpp\ncannot_run: nothing was published\nvariants: {y: {engine: openai, cannot_run: z}}"
    assert set(loaded(text).profiles) == {"x", "x/y"}
