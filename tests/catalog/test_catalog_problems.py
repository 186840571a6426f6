"""Problems told to a profile's author: all at once, each at its line, with the way out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sparkdash import catalog, rules
from sparkdash.catalog import load_catalog, summarize
from sparkdash.catalog.document import Document, read_document
from sparkdash.catalog.jsonschema import profile_schema
from sparkdash.catalog.quadlet_unit import quadlet_unit
from sparkdash.domain.profile import Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.paths import shipped_profiles
from sparkdash.tui.lines.words import engine_name

Told = Callable[[str], list[str]]
Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("image:", "imgae:", "4: imgae: unknown key. Did you mean 'image'?"),
        ("{path:", "{pth:", "6: models.target.pth: unknown key. Did you mean 'path'?"),
        ("engine: vllm", "engine: vlm", "3: engine: must be one of vllm, sglang, llamacpp, trtllm, tensorfold, generic, openai, remote, sim, not 'vlm'. Did you mean 'vllm'?"),
        ("engine: vllm\n", "", "1: 'engine' is missing."),
        ("about: a small one", "engine_version: 0.16", "2: engine_version: must be text, not 0.16. Write it in quotes: \"0.16\"."),
        ("about: a small one", "engine_version: 0.30", "2: engine_version: must be text, not 0.30. Write it in quotes: \"0.30\"."),
        ("4096", "4096, model: /m/other", "8: args.model: names the model, as `models.target` does. Remove it;"),
        ("args:", "env: {A: 1}\nargs:", "8: env.A: must be text, not 1. Write it in quotes: \"1\"."),
        ("4096", "{1: a}", '8: args.max-model-len.1: the key 1 must be text. Write it in quotes: "1".'),
        ("{path: /models/tiny}", "{path: /m, hf: a/b}", "6: models.target: give exactly one of 'path' and 'hf'."),
        ("{path: /models/tiny}", "/models/tiny", "6: models.target: must be a mapping, not '/models/tiny'. Write {path: /folder} or {hf: owner/name}"),
        ("args:", "memory: 4\nargs:", "8: memory: must be a mapping, not 4. Its keys: weights_gib, kv_gib,"),
        ("[small]", "small", "7: serves: must be a list, not 'small'."),
        ("[small]", "[{target: /l}]", "1: serves: 'target' is the name of a model already."),
        ("[small]", "[{sql: lora}]", "5: models.sql.path: 'lora' is not absolute. Begin it with / or ~."),
        ("vllm\nimage: localhost/tiny\nmodels:\n  target: {path: /models/tiny}\nserves: [small]", "sglang\nimage: a\nmodels: {target: {path: /m}}\nserves: [{sql: /l}]", "6: serves: SGLang gets no LoRA adapters from sparkdash."),
        ("args:", "gpu: maybe\nargs:", "8: gpu: must be true or false, not 'maybe'."),
        ("args:", "variants: {1: {}}\nargs:", "8: variants.1: 1 is no name for a variant."),
        ("args:", "context: 1.5\nargs:", "8: context: must be a whole number, not 1.5."),
        ("args:", "memory: {kv_gib: lots}\nargs:", "8: memory.kv_gib: must be a number, not 'lots'."),
        ("args:", "env_from: [a b]\nargs:", "8: env_from.0: must be of the form ^[A-Za-z_]"),
        ("/models/tiny", "models/tiny", "6: models.target.path: 'models/tiny' is not absolute. Begin it with / or ~."),
        ("args:", "replicas: 2\nnode: spark2\nargs:", "8: replicas: is only for a profile that sparkdash starts on one node, and not on a given one."),
        ("engine: vllm", "engine: trtllm\nnodes: 2", "4: nodes: sparkdash starts trtllm on one node only."),
        ("args:", "nodes: 2\nnode: spark2\nargs:", "9: node: is only for a profile that sparkdash starts on one node."),
        ("args:", "nodes: 0\nargs:", "8: nodes: must be at least 1, not 0."),
        ("args:", "memory: {weigths_gib: 4}\nargs:", "8: memory.weigths_gib: unknown key. Did you mean 'weights_gib'?"),
        ("args:", "published: [{workload: w, source: s, decode: 4}]\nargs:", "8: published.0.decode: unknown key. Did you mean 'decode_tok_s'?"),
        ("args:", "request_set: {stream: true}\nargs:", "8: request_set.stream: no profile changes 'stream' of a request. The gateway answers by it."),
        ("args:", "request_strip: [user, messages]\nargs:", "8: request_strip.1: no profile changes 'messages' of a request. It is what the client asks."),
        ("args:", "modes: {high: {model: x}}\nargs:", "8: modes.high.model: no profile changes 'model' of a request."),
        ("args:", "modes: {'a b': {}}\nargs:", "8: modes.a b"),
        ("args:", "request: {top_p: 1e999}\nargs:", "8: request: holds a number that is not finite"),
        ("args:", "modes: {high: {seed: .nan}}\nargs:", "8: modes: holds a number that is not finite"),
        ("args:", "mends_off: [claude-biling-line]\nargs:", "8: mends_off.0: must be one of claude-billing-line,"),
        ("args:", "name: tiny\nargs:", "8: name: unknown key."),
        ("[small]", "[auto]", "7: serves.0: the alias 'auto' is reserved. It means whatever runs now."),
        ("[small]", '["a b"]', "7: serves.0: 'a b' is no alias."),
        ("[small]", "[{tiny: /w}]", "7: serves.0: 'tiny' is already taken by tiny ("),
        ("[small]", "[s, s]", "7: serves.1: 's' is already taken by tiny ("),
        ("tiny\nabout", "Tiny one\nabout", "1: profile: 'Tiny one' is no name for a profile."),
        ("tiny\nabout", "a/b\nabout", "1: profile: 'a/b' is no name for a profile."),
        ("tiny\nabout", "auto\nabout", "1: profile: 'auto' is reserved."),
        ("profile: tiny\n", "", "1: 'profile' is missing. Begin the file with `profile: NAME`."),
        ("image: localhost/tiny\n", "", "1: image: is missing, and vllm runs in a container."),
        ("  target:", "  other:", "5: models: 'target' is missing: vllm must be given a model."),
        ("max-model-len", "--max-model-len", "8: args.--max-model-len: is written with dashes. Write 'max-model-len'."),
        ("max-model-len", "served_model_name", "8: args.served_model_name: is set by sparkdash."),
        ("max-model-len", "node_rank", "8: args.node_rank: is set by sparkdash for each node."),
        ("4096", '"{draftr}"', "8: args.max-model-len: names the model {draftr}, which is not under `models`. Add `draftr:`"),
        ("{max-model-len: 4096}", "{s: {model: '{taget}'}}", "8: args.s.model: names the model {taget}, which is not under `models`. Did you mean {target}?"),
        ("args:", "url: http://x\nargs:", "8: url: is only for engines 'openai' and 'remote'."),
        ("args:", "model_id: x\nargs:", "8: model_id: is only for engines 'openai', 'remote' and 'generic'."),
        ("args:", "nearest: tinny\nargs:", "8: nearest: there is no profile 'tinny'. Did you mean tiny?"),
        ("args:", "variants: [a]\nargs:", "8: variants: must map names to what they change."),
        ("args:", "variants: {'a b': {}}\nargs:", "8: variants.a b: 'a b' is no name for a variant."),
        ("args:", "variants: {a: 7}\nargs:", "8: variants.a: must be a mapping of what it changes."),
        ("args:", "variants:\n  a:\n    arg: {x: 1}\nargs:", "10: variants.a.arg: unknown key. Did you mean 'args'?"),
        ("args:", "variants:\n  a:\n    profile: x\nargs:", "10: variants.a.profile: unknown key."),
        ("args:", "variants:\n  a: {}\n  a: {}\nargs:", "10: a: it is given twice. Keep one of the two."),
        ("args:", "mounts: [{source: data, target: /data}]\nargs:", "8: mounts.0.source: 'data' is not absolute."),
        ("args:", "parallel: {tpp: 2}\nargs:", "8: parallel.tpp: the key 'tpp' must be one of 'tp', 'pp', 'dp', 'ep' or 'dcp'."),
        ("image: localhost/tiny", "starter: {start: [run]}", "4: starter: `start` does not hand {port} on."),
        ("args:", "starter: {start: [run, '{port}']}\nargs:", "4: image: is not for an engine that a starter launches."),
        ("image: localhost/tiny", "starter: {start: [run, '{port}', '{prt}']}", "4: starter.start.2: names the model {prt}"),
        ("image: localhost/tiny", "node: spark2\nstarter: {start: [run, '{port}']}", "5: starter: launches engines on this box alone."),
    ],
)  # fmt: skip
def test_one_mistake_gives_one_problem_at_its_line(old: str, new: str, problem: str, good: str, told: Told) -> None:
    assert old in good
    found = told(good.replace(old, new, 1))
    assert len(found) == 1, found
    assert found[0].startswith(problem)


@pytest.mark.parametrize(("text", "problem"), [
    ("engine: openai", "url: is missing: engine 'openai' is a server at a URL. Add `url: http://host:port`."),
    *((f"engine: openai\nurl: '{url}'", f"url: '{url}' is no http URL. Write it as http://host:port.") for url in (
        "localhost:1234", "http://localhost:99999", "http://[::1",
    )),
    ("engine: openai\nurl: http://me:pw@localhost:1",
     "url: has a name or a password in it, which no engine is sent. Take it out: http://host:port."),
    ("engine: openai\nurl: http://near\nkey_env: KEY", "key_env: is only for engine 'remote'"),
    ("engine: remote", "url: is missing: engine 'remote' is a service at a URL"),
    ("engine: remote\nurl: far.example/v1", "url: 'far.example/v1' is no http URL"),
    ("engine: remote\nurl: https://far.example",
     "url: has no path. Write the base URL, mostly https://far.example/v1."),
    ("engine: remote\nurl: https://me:pw@far.example/v1", "url: has a secret in it"),
    ("engine: remote\nurl: https://far.example/v1\nkey_env: sk-123", "key_env: "),
])  # fmt: skip
def test_a_server_needs_its_url_and_a_service_its_base_url(text: str, problem: str, told: Told) -> None:
    """As its provider writes it, without a secret in it."""
    (found,) = told(f"profile: there\n{text}\n")
    assert found.split(": ", 1)[1].startswith(problem)


def test_all_problems_are_told_at_once_and_only_once(good: str, told: Told) -> None:
    """The base's mistake is not repeated for each variant; each variant's own is added."""
    text = (
        good.replace("image:", "imgae:").replace("[small]", "[auto]") + "variants:\n  a: {gpu: 3.5}\n  b: {nodes: x}\n"
    )
    assert [line.split(": ")[1] for line in told(text)] == ["imgae", "variants.a.gpu", "variants.b.nodes"]


def test_a_broken_file_never_hides_the_others(write: Write, good: str) -> None:
    folder = write(
        good=good,
        tab="profile: x\n\tengine: vllm\n",
        empty="",
        words="just words\n",
        list="- a\n",
        two="a: 1\n---\nb: 2\n",
    )
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (folder / "notes.txt").write_text("not a profile")
    found = catalog.load_catalog([folder])
    assert list(found.profiles) == ["tiny"]
    assert [Path(p.file).stem for p in found.problems] == ["binary", "empty", "list", "tab", "two", "words"]
    tab = next(p for p in found.problems if p.file.endswith("tab.yaml"))
    assert tab.line == 2
    assert "not valid YAML" in tab.message


def test_a_family_has_one_file_in_a_folder(write: Write, good: str) -> None:
    found = catalog.load_catalog([write(a=good, b=good.replace("[small]", "[other]"))])
    (problem,) = found.problems
    assert (Path(problem.file).name, problem.line, problem.key) == ("b.yaml", 1, "profile")
    assert "'tiny' is already taken by tiny (" in problem.message
    assert "a.yaml:1)" in problem.message


def test_an_alias_belongs_to_one_profile(write: Write, good: str) -> None:
    folder = write(
        a=good,
        b=good.replace("profile: tiny", "profile: b"),
        c=good.replace("profile: tiny", "profile: c").replace("small", "tiny"),
    )
    found = catalog.load_catalog([folder])
    assert list(found.profiles) == ["tiny"]
    assert [(Path(p.file).name, p.line, p.key) for p in found.problems] == [
        ("b.yaml", 7, "serves.0"),
        ("c.yaml", 7, "serves.0"),
    ]


def test_a_later_folder_replaces_a_family(write: Write, good: str) -> None:
    shipped = write("shipped", tiny=good + "variants: {old: {}}\n")
    own = write("own", mine=good.replace("a small one", "my own").replace("[small]", "[mine]"))
    found = catalog.load_catalog([shipped, own])
    assert found.problems == ()
    assert list(found.profiles) == ["tiny"]
    assert (found.profiles["tiny"].about, found.profiles["tiny"].serves) == ("my own", ("mine",))


def test_a_missing_folder_is_a_problem(tmp_path: Path) -> None:
    (problem,) = catalog.load_catalog([tmp_path / "nowhere"]).problems
    assert str(problem) == f"{tmp_path}/nowhere: there is no such folder. Correct `profiles` in config.toml."


def test_a_process_needs_no_image(told: Told, good: str) -> None:
    """With a command of its own, a profile can run without containers."""
    assert told(good.replace("image: localhost/tiny", "command: [/opt/vllm, serve]")) == []


def test_what_is_no_ordinary_file_is_named_and_never_waited_for(tmp_path: Path) -> None:
    """A named pipe that nobody writes to, a device without an end, 26 MB: the other files load."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "device.yaml").symlink_to("/dev/zero")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "huge.yaml").write_text("profile: huge\n" + "# padding\n" * 2_600_000)
    (tmp_path / "good.yaml").write_text("profile: good\nengine: openai\nurl: http://127.0.0.1:1\n")
    found = catalog.load_catalog([tmp_path])
    assert list(found.profiles) == ["good"]
    assert [problem.message for problem in found.problems] == [
        "it is a device, and not a file",
        "it is a folder, and not a file",
        "it is larger than 1 MB",
        "it is a named pipe, and not a file",
    ]


def _bomb(key: str) -> str:
    """Nine anchors of nine aliases each, below `key`: 10^9 values in 1 KB."""
    lines = ["  a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  {b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join((f"{key}:", *lines, ""))


@pytest.mark.parametrize("key", ["request", "env", "models", "mounts", "build", "published", "args", "variants"])
def test_aliases_that_multiply_are_a_problem_like_any_other(told: Told, good: str, key: str) -> None:
    """Multiplying aliases once froze the daemon for minutes; nothing is built of them."""
    (problem,) = told("".join(line for line in good.splitlines(True) if key not in line) + _bomb(key))
    assert "it has more than 20000 values" in problem


@pytest.mark.parametrize(("key", "wrong"), [("env", "key{}: {{}}"), ("args", "a{0}: '{{m{0}}}'")])
def test_of_thousands_of_mistakes_the_first_are_told(told: Told, good: str, key: str, wrong: str) -> None:
    """Each takes a search for what was meant."""
    mistakes = "".join(f"  {wrong.format(number)}\n" for number in range(3000))
    kept = "".join(line for line in good.splitlines(True) if not line.startswith(key))
    assert 0 < len(told(f"{kept}{key}:\n{mistakes}")) <= 100


@pytest.mark.parametrize(
    "wrong",
    [f"profile: {'a-' * 50_000}!", f"about: b\n{'k' * 100_000}: 1", f"args: {{{'k' * 100_000}: a}}"],
    ids=["name", "key", "argument"],
)
def test_a_problem_is_short_whatever_is_written(told: Told, good: str, wrong: str) -> None:
    kept = "".join(line for line in good.splitlines(True) if not line.startswith(wrong.split()[0]))
    assert 0 < sum(map(len, told(f"{wrong}\n{kept}"))) < 5000


def test_a_problem_repeats_no_secret(told: Told, good: str) -> None:
    """Everybody may read what is wrong with a file: the state, lists and the log of the daemon have it."""
    wrong = good.replace("args: {max-model-len: 4096}", 'args: "--api-key hunter2hunter2"')
    problems = told(f"{wrong}env: [HF_TOKEN=letmeinletmein]\nrequest: {{a: 1}}\nmounts: {{HF_TOKEN: letmeinletmein}}\n")
    assert len(problems) == 3
    assert not [problem for problem in problems if "hunter2" in problem or "letmein" in problem]


CHECKER = jsonschema.Draft202012Validator(profile_schema())
GOOD: dict[str, Any] = {"profile": "tiny", "engine": "vllm", "image": "i", "models": {"target": {"path": "/m"}}}


@pytest.mark.parametrize("path", sorted(shipped_profiles().glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_profile_is_valid(path: Path) -> None:
    document = read_document(path)
    assert isinstance(document, Document)
    assert [error.message for error in CHECKER.iter_errors(document.data)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"imgae": "x"}, {"engine": "vlm"}, {"engine_version": 0.19}, {"nodes": 0}, {"profile": "a/b"},
        {"models": {"target": {"pth": "/m"}}}, {"models": {"target": {"path": "/m", "hf": "a/b"}}},
        {"memory": {"weights_gib": -1}}, {"env": {"A": 1}}, {"env_from": ["A=b"]}, {"silence": {"enforce-eager": ""}},
        {"published": [{"workload": "w"}]}, {"variants": ["a"]}, {"variants": {"a b": {}}},
        {"variants": {"a": {"arg": {}}}}, {"source": "x"}, {"name": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_planted_mistakes_are_marked(wrong: dict[str, Any]) -> None:
    assert CHECKER.is_valid(GOOD)
    assert not CHECKER.is_valid(GOOD | wrong)


def test_a_variant_may_remove_what_its_base_gives() -> None:
    variant = {"env": {"A": None}, "models": {"drafter": None}, "memory": {"kv_gib": None}, "extends": None}
    assert CHECKER.is_valid(GOOD | {"variants": {"v": variant, "empty": None}})


def test_keys_carry_their_descriptions() -> None:
    schema = profile_schema()
    assert schema["properties"]["command"]["description"].startswith("The program in the container")
    assert schema["$defs"]["Published"]["properties"]["kv_tokens"]["description"] == "Tokens that the KV cache holds."


LAUNCH = LaunchContext(port=18000, containerised=True, hf_home="/hf", cache_dir="/cache")
BASE = "profile: mine\nengine: generic\nimage: localhost/mine:1\n"


def problems(folder: Path, text: str) -> list[str]:
    """Problems of one file, without their place."""
    (folder / "mine.yaml").write_text(text)
    return [str(problem).partition(": ")[2] for problem in load_catalog([folder]).problems]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("server: {}", "server: nothing tells on which port the server listens. Put {port} into"),
        ("server: {port: 1}\nargs: {port: '{port}'}", "is given, and {port} is told to the server too"),
        ("server: {port: 1, routes: []}", "server.routes: is empty"),
        ("server: {port: 1, routes: [chta]}", "Did you mean 'chat'?"),
        ("server: {port: 1, kind: ollma}", "Did you mean 'ollama'?"),
        ("server: {port: 1, paths: {rerank: /r}}", "gives the path of rerank, which is not among the routes"),
        ("server: {port: 1, ready_by: embeddings}", "embeddings is not among the routes"),
        ("server: {port: 1, routes: [realtime], ready_by: realtime}", "sparkdash cannot try realtime"),
        ("server: {port: 1, metrics: {names: {runing: x}}}", "Did you mean 'running'?"),
        ("server: {port: 1, log: [{stage: weights, pattern: '('}]}", "is no regular expression"),
        ("server: {port: 1, healthy: /h}", "unknown key. Did you mean 'health'?"),
        ("server: {kind: atlas}", "'target' is missing: Atlas must be given a model"),
        ("server: {port: 1}\nurl: http://127.0.0.1:1", "url: is only for engines 'openai' and 'remote'"),
        ("server: {port: 1}\nvariants: {bare: {image: null}}", "image: is missing, and nothing else says what"),
        ("server: {port: 1}\nargs: {model: '{taget}'}\nmodels: {target: {path: /m}}", "Did you mean {target}?"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(tmp_path: Path, more: str, told: str) -> None:
    (found,) = problems(tmp_path, f"{BASE}{more}\n")
    assert told in found


@pytest.mark.parametrize(("more", "hits"), [
    ("command: [x, --listen, '0.0.0.0:{port}']", [("server-exposed", "command.2")]),
    ("args: {host: '::', port: '{port}'}", [("server-exposed", "args.host")]),
    ("env: {X_HOST: '0.0.0.0:{port}'}", [("server-exposed", "env.X_HOST")]),
    ("args: {host: 127.0.0.1, port: '{port}'}", []), ("server: {port: 8000}\nargs: {host: 0.0.0.0}", []),
])  # fmt: skip
def test_a_server_that_others_could_reach_without_a_key_is_found(
    tmp_path: Path, more: str, hits: list[tuple[str, str]]
) -> None:
    """Inside a network of its own it may listen on all addresses."""
    (tmp_path / "mine.yaml").write_text(
        f"{BASE}{more}\n".replace("localhost/mine:1", "localhost/mine:1@sha256:" + "0" * 64)
    )
    found = rules.findings(load_catalog([tmp_path]))
    assert [(one.rule, one.problem.key) for one in found if one.rule == "server-exposed"] == hits


def test_the_key_server_is_for_generic_engines_alone(tmp_path: Path) -> None:
    """Elsewhere it would be without effect."""
    text = "profile: a\nengine: vllm\nimage: x\nmodels: {target: {path: /m}}\nserver: {port: 1}\n"
    assert "server: is only for engine 'generic'" in problems(tmp_path, text)[0]


def test_a_variant_changes_one_key_of_the_server(tmp_path: Path) -> None:
    variant = "server: {port: 1, routes: [chat, embeddings]}\nvariants: {told: {command: [x, '{port}'], server: {port: null}}}"
    (tmp_path / "mine.yaml").write_text(f"{BASE}{variant}\n")
    found = load_catalog([tmp_path])
    server = found.profiles["mine/told"].server
    assert not found.problems
    assert server is not None
    assert (server.port, len(server.routes)) == (None, 2)


def _generic(**values: Any) -> Profile:
    return Profile.model_validate({"name": "mine", "engine": "generic", "image": "localhost/mine:1", **values})


def test_a_quadlet_publishes_the_fixed_port_and_names_the_signal() -> None:
    """Without a command the image's own entrypoint runs."""
    profile = _generic(server={"port": 8000, "stop_signal": "SIGINT"})
    lines = quadlet_unit(profile, adapter_of(profile).container(profile, LAUNCH)).splitlines()
    assert {"PublishPort=127.0.0.1:18000:8000", "StopSignal=SIGINT"} <= set(lines)
    assert not [line for line in lines if line.startswith(("Network=", "Entrypoint=", "Exec="))]


def test_the_summary_names_the_known_server() -> None:
    """Lists and screens show it in place of the kind."""
    known, other = _generic(server={"kind": "tei"}), _generic(server={"port": 1})
    assert summarize(known, adapter_of(known)).server == "Text Embeddings Inference"
    assert summarize(other, adapter_of(other)).server is None
    assert engine_name(summarize(known, adapter_of(known))) == "Text Embeddings Inference"
    assert engine_name(summarize(other, adapter_of(other))) == "any server"
