"""How a variant grows out of its base."""

from collections.abc import Callable

import pytest

from sparkdash.catalog import Catalog
from sparkdash.domain.profile import EngineKind, Profile

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
    """Variants that extend it do not repeat it."""
    assert told(FAMILY.replace("args: {spec: {method: eagle3}}", "args: {port: 1}")) == [
        "12: variants.fast.args.port: is set by sparkdash. Remove it; give aliases under `serves`."
    ]


def test_what_cannot_run_may_leave_open_what_no_source_tells(loaded: Callable[[str], Catalog]) -> None:
    """Image, model and address are asked of what is started."""
    text = "profile: x\nengine: llamacpp\ncannot_run: nothing was published\nvariants: {y: {engine: openai, cannot_run: z}}"
    assert set(loaded(text).profiles) == {"x", "x/y"}


Loaded = Callable[[str], Catalog]

BASE = """\
profile: big
about: the base
engine: vllm
engine_version: "0.19"
image: localhost/big
models:
  target: {path: /models/big}
serves: [b]
args: {max-model-len: 4096, enforce-eager: true, cfg: {a: 1, b: {c: 2}}}
env: {A: "1", B: "2"}
request: {chat_template_kwargs: {enable_thinking: false}, top_k: 20}
tmpfs: [/x, /y]
memory: {weights_gib: 10, source: card}
published: [{workload: w, decode_tok_s: 5, source: s.txt}]
cannot_run: because
variants:
  changed:
    models:
      drafter: {hf: own/head}
    args: {max-model-len: 8192, enforce-eager: null, cfg: {b: {d: 3}}, spec: "{drafter}"}
    env: {B: null, C: "3"}
    request: {chat_template_kwargs: {extra: 1}}
    tmpfs: [/z]
    memory: {kv_gib: 4}
    image: localhost/other
  moved:
    models: {target: {hf: own/model}}
    image: null
    command: [/opt/vllm, serve]
  plain:
"""


@pytest.fixture
def family(loaded: Loaded) -> Catalog:
    return loaded(BASE)


def test_mappings_merge_key_by_key_and_null_removes(family: Catalog) -> None:
    changed = family.profiles["big/changed"]
    assert changed.args == {"max-model-len": 8192, "cfg": {"a": 1, "b": {"c": 2, "d": 3}}, "spec": "{drafter}"}
    assert changed.env == {"A": "1", "C": "3"}
    assert changed.request == {"chat_template_kwargs": {"enable_thinking": False, "extra": 1}, "top_k": 20}
    assert (changed.memory.weights_gib, changed.memory.kv_gib) == (10, 4)


def test_lists_and_scalars_are_replaced(family: Catalog) -> None:
    assert family.profiles["big/changed"].tmpfs == ("/z",)
    assert family.profiles["big/changed"].image == "localhost/other"
    assert family.profiles["big/moved"].image is None


def test_models_are_added_or_replaced_whole(family: Catalog) -> None:
    assert family.profiles["big/changed"].models["drafter"].hf == "own/head"
    assert family.profiles["big/moved"].models["target"].path is None


def test_aliases_figures_and_what_bars_the_base_stay_with_it(family: Catalog) -> None:
    """An empty variant has everything else."""
    plain, base = family.profiles["big/plain"], family.profiles["big"]
    assert (plain.serves, plain.published, plain.cannot_run) == ((), (), None)
    assert (plain.about, plain.args, plain.engine_version) == (base.about, base.args, "0.19")
    assert (plain.family, plain.variant) == ("big", "plain")


def test_equal_launches_have_equal_fingerprints(family: Catalog) -> None:
    """A variant that changes nothing is the same launch but for the names that the engine answers to."""
    big = family.profiles["big"]
    assert family.profiles["big/changed"].fingerprint != big.fingerprint
    for base in (big.model_copy(update={"serves": ()}), big.replace(serves=())):
        assert family.profiles["big/plain"].fingerprint == base.fingerprint


@pytest.mark.parametrize(("engine", "same"), [(EngineKind.SIM, False), (EngineKind.VLLM, True)])
def test_the_context_is_part_of_a_simulated_launch_alone(engine: EngineKind, same: bool) -> None:
    """A simulated engine is started with it; of a real one it only tells."""
    short, long = (Profile(name="m", engine=engine, context=context) for context in (4096, 8192))
    assert (short.fingerprint == long.fingerprint) is same


def test_each_profile_knows_its_line(family: Catalog) -> None:
    lines = [int(profile.source.rsplit(":", 1)[1]) for profile in family.profiles.values()]
    assert lines == [1, 17, 26, 30]


def test_a_home_folder_is_expanded(loaded: Loaded, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/owner")
    text = good.replace("/models/tiny", "~/models/tiny") + "mounts: [{source: ~/data, target: /data}]\n"
    profile = loaded(text).profiles["tiny"]
    assert profile.models["target"].path == "/home/owner/models/tiny"
    assert profile.mounts[0].source == "/home/owner/data"


def test_anchors_and_merge_keys_work(loaded: Loaded, good: str) -> None:
    text = good.replace(
        "args: {max-model-len: 4096}", "args: &a {max-model-len: 4096}\nvariants:\n  v: {args: {<<: *a, x: 1}}"
    )
    assert loaded(text).profiles["tiny/v"].args == {"max-model-len": 4096, "x": 1}
