"""`sparkdash profiles`, `run --dry-run`, `logs`, and completion."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon, engine, summary, swap

from sparkdash import keyring, paths
from sparkdash.cli.parameters import complete_profile
from sparkdash.cli.profiles import check
from sparkdash.client import launch
from sparkdash.domain.engine import EngineState
from sparkdash.domain.images import ImageOrigin
from sparkdash.domain.node import Node
from sparkdash.domain.profile import EngineKind, MemoryNeed, ModelRef, Profile, ProfileSummary, Published
from sparkdash.nodes import node_file

Run = Callable[..., Any]

GOOD = """\
profile: small
about: a small model
engine: vllm
engine_version: "0.22.1"
image: localhost/vllm:test
models:
  target: {path: /data/small}
serves: [little]
args: {gpu-memory-utilization: 0.8, load-format: fastsafetensors, max-model-len: 4096}
variants:
  broken: {cannot_run: no MTP head, nearest: small}
"""


@pytest.fixture
def profile_folder(own_folders: Path) -> Path:
    """The owner's folder of profiles, with one good file; those shipped are left out."""
    (own_folders / "config" / "config.toml").write_text("shipped_profiles = false\n")
    folder = own_folders / "config" / "profiles"
    folder.mkdir()
    (folder / "small.yaml").write_text(GOOD)
    return folder


def test_the_list_shows_needs_published_rates_and_states(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(
        profiles=(
            summary("gpt-oss-120b"),
            summary("other", fingerprint="newer"),
            summary("qwen/eagle3", needs_bytes=None, published_decode_tok_s=None, speculation="eagle3 k=1"),
            summary("qwen/mtp", cannot_run="no MTP head", nearest="qwen/eagle3"),
        ),
        engines={"gpt-oss-120b": engine("gpt-oss-120b"), "other": engine("other")},
        problems=("x.yaml:1: wrong.",),
    )
    done = sparkdash("profiles")
    assert (
        done.out
        == """\
profile       engine   needs  tok/s  drafts      image  weights  state
gpt-oss-120b  vllm    79 GiB   59.0  -               -        -  ready
other         vllm    79 GiB   59.0  -               -        -  ready, edited
qwen/eagle3   vllm         -      -  eagle3 k=1      -        -  stopped
qwen/mtp      vllm    79 GiB   59.0  -               -        -  cannot run
"""
    )
    assert "the best published rate, not measured here" in done.err
    assert "1 problem in profile files" in done.err


def test_the_list_as_json_is_the_summaries(sparkdash: Run, daemon: FakeDaemon) -> None:
    """The box of a remote or simulated daemon is not looked at."""
    daemon.set(profiles=(summary("a"),), problems=("x.yaml:1: wrong.",))
    rows = [summary("a").model_dump(mode="json")]
    told = sparkdash("profiles", "--json").json()
    assert told == {"profiles": rows, "problems": ["x.yaml:1: wrong."], "here": {}, "images": {}}


def test_profiles_are_listed_and_shown_without_a_daemon(
    sparkdash: Run, profile_folder: Path, nobody: None, no_images: None
) -> None:
    assert (
        sparkdash("profiles").out
        == """\
profile       engine  needs  tok/s  drafts      image  weights  state
small         vllm        -      -  -       no source  missing  no image
small/broken  vllm        -      -  -       no source  missing  cannot run
"""
    )
    assert sparkdash("profiles", "show", "little", "--json").json()["name"] == "small"
    done = sparkdash("profiles", "show", "smal")
    assert (done.code, "Did you mean small?" in done.err) == (3, True)


def whole(**rest: Any) -> Profile:
    given = {
        "about": "the a", "engine": EngineKind.VLLM, "image": "i", "models": {"target": ModelRef(hf="org/a")},
        "serves": ("x", "y"), "args": {"max-model-len": 4096, "kv-cache-memory-bytes": "2G"}, "env": {"K": "v"},
        "memory": MemoryNeed(weights_gib=60, source="a card"), "source": "a.yaml:1",
        "published": (Published(workload="ctx 0", source="paper.txt", decode_tok_s=59.0),),
    }  # fmt: skip
    return Profile(name="a", **(given | rest))


def test_show_gives_all_facts_and_their_sources(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.whole["a"] = whole()
    told = sparkdash("profiles", "show", "a").out
    for line in (
        "  aliases         x, y\n",
        "  context         4.1k\n",
        "  on stuck        restart\n",
        "  memory          - (weights 60.0 GiB, kv -, overhead -; a card)\n",
        "  model target    org/a\n",
        "  arg max-model-len = 4096\n",
        "  env K = v\n",
        "  need            69.0 GiB, estimated\n",
        "    weights        60.0 GiB  memory.weights_gib in the profile: a card\n",
        "    kv              2.0 GiB  --kv-cache-memory-bytes\n",
        "  published\n  ctx 0\n    decode       59.0 tok/s\n    source       paper.txt\n",
        "  decode          generated tokens / time after the first one\n",
    ):
        assert line in told
    assert sparkdash("profiles", "show", "a", "--json").json()["need"]["terms"][1]["bytes"] == 2 * 2**30


def test_show_says_why_a_need_is_not_known(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.whole["a"] = whole(memory=MemoryNeed(), models={"target": ModelRef(path="/nowhere/a")})
    told = sparkdash("profiles", "show", "a").out
    assert "  need            -, unknown\n    weights               -  /nowhere/a is not on this box.\n" in told


FIGURES = (
    Published(workload="a long one", source="paper.txt", decode_tok_s=57, upto=60, note="about"),
    Published(workload="all at once", source="paper.txt", aggregate_tok_s=123.4, prefill_tok_s=3316),
    Published(workload="cache", source="paper.txt", prefix_hit_rate=0.76, kv_tokens=630_000, math_score=0.7),
    Published(workload="not given", source="other.txt", tok_s=14, upto=21, e2e_tok_s=None),
)


def test_show_prints_every_published_field_at_any_width(
    sparkdash: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    daemon.whole["a"] = whole(published=FIGURES)
    told = sparkdash("profiles", "show", "a").out
    for figure in (
        "57.0 to 60.0", "paper.txt (about)", "123.4", "3316", "76 %", "630000", "70 %", "14.0 to 21.0", "other.txt",
        "the source does not say what was measured",
    ):  # fmt: skip
        assert figure in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 60


def test_check_is_content_with_good_files(sparkdash: Run, profile_folder: Path) -> None:
    assert sparkdash("profiles", "check").out == "2 profiles, no problems.\n"
    told = sparkdash("profiles", "check", str(profile_folder / "small.yaml"), "--json").json()
    assert told == {"profiles": ["small", "small/broken"], "problems": [], "warnings": [], "findings": []}


def test_check_tells_what_lies_beyond_the_file(
    sparkdash: Run, profile_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that this environment lacks, and profiles that nobody has; warnings, as the daemon's environment is another."""
    monkeypatch.delenv("TEST_NO_KEY", raising=False)
    far = profile_folder / "far.yaml"
    far.write_text(
        "profile: far\nengine: remote\nurl: http://far.example/v1\nkey_env: TEST_NO_KEY\nfallbacks: [small, nobody]\n"
    )
    done = sparkdash("profiles", "check", "--json").json()
    told = {(one["code"], one["key"]) for one in done["findings"] if one["file"] == str(far)}
    assert told == {("key-missing", "key_env"), ("unknown-fallback", "fallbacks.1"), ("remote-in-clear", "url")}
    shown = sparkdash("profiles", "show", "far").out
    assert "in TEST_NO_KEY" in shown
    assert "small, nobody" in shown
    far.write_text(
        "profile: far\nengine: vllm\nimage: a\nmodels: {target: {hf: a/b}}\nreplicas: 3\nargs: {gpu-memory-utilization: 0.8}\n"
    )
    (few,) = [one for one in sparkdash("profiles", "check", "--json").json()["findings"] if one["code"] == "few-nodes"]
    assert (few["key"], few["message"]) == ("replicas", "names 3 boxes, and 1 is known")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9191", "http://localhost:9191", "http://[::1]:9191"])
def test_check_refuses_a_url_that_is_the_gateway_itself(
    sparkdash: Run, profile_folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests would come back; another port of this box is another server."""
    monkeypatch.setenv("SPARKDASH_PORT", "9191")
    (profile_folder / "mirror.yaml").write_text(f"profile: mirror\nengine: remote\nurl: {url}/v1\n")
    (profile_folder / "other.yaml").write_text("profile: other\nengine: openai\nurl: http://127.0.0.1:9192\n")
    done = sparkdash("profiles", "check")
    assert done.code == 2
    assert "mirror.yaml:3: url: is the address of this gateway" in done.err
    assert "other.yaml" not in done.err


@pytest.mark.parametrize(("name", "told"), [
    ("small.yaml.txt", "small.yaml.txt: no profile; their files end in .yaml or .yml."),
    ("pipe.yaml", "pipe.yaml: it is no folder, and no regular file."),
    ("nosuch", "no such folder"),
])  # fmt: skip
def test_check_says_what_is_no_profile(sparkdash: Run, profile_folder: Path, name: str, told: str) -> None:
    os.mkfifo(profile_folder / "pipe.yaml")
    (profile_folder / "small.yaml.txt").write_text(GOOD)
    done = sparkdash("profiles", "check", str(profile_folder / name))
    assert (done.code, told in done.err) == (2, True)
    assert "config.toml" not in done.err, "it was not read"


def test_check_names_every_problem_with_its_line(sparkdash: Run, profile_folder: Path) -> None:
    bad = profile_folder / "bad.yaml"
    bad.write_text("profile: bad\nengine: vlm\nimagee: x\n")
    done = sparkdash("profiles", "check", str(bad))
    assert (done.code, done.out) == (2, "")
    assert f"{bad}:2: engine: " in done.err
    assert f"{bad}:3: imagee: " in done.err
    error = sparkdash("profiles", "check", "--json").json()["error"]
    assert len(error["problems"]) == 2
    assert [one["code"] for one in error["findings"]] == ["wrong-value", "unknown-key"]
    assert error["findings"][1] == {
        "code": "unknown-key", "level": "error", "file": str(bad), "line": 3, "column": 1, "key": "imagee",
        "message": "unknown key", "hint": "Did you mean 'image'?", "profiles": [],
    }  # fmt: skip
    assert sparkdash("profiles", "check", str(profile_folder / "small.yaml")).code == 0


@pytest.mark.parametrize(("argument", "code", "out", "told"), [
    ("max-num-batched-tokens: 65536", 2, "", "args.max-num-batched-tokens: 65536 tokens in one step can take"),
    ("enforce-eager: true", 0, "2 profiles, no problems; 1 warning.\n",
     "args.enforce-eager: decodes at less than half the speed. Remove it. [enforce-eager]"),
], ids=["an error of its dialect", "a warning alone fails nothing"])  # fmt: skip
def test_check_asks_the_rules_too(
    sparkdash: Run, profile_folder: Path, argument: str, code: int, out: str, told: str
) -> None:
    (profile_folder / "small.yaml").write_text(GOOD.replace("max-model-len: 4096", argument))
    done = sparkdash("profiles", "check")
    assert (done.code, done.out) == (code, out)
    assert f"{profile_folder}/small.yaml:9: {told}" in done.err


def test_a_command_that_is_shown_or_exported_has_no_secret(sparkdash: Run, profile_folder: Path) -> None:
    token = "hf_" + "Zz9" * 8
    held = f"max-model-len: 4096, api-key: hunter2secret, hf-overrides: {{t: {token}}}"
    text = GOOD.replace("max-model-len: 4096", held) + f"env: {{FOO: {token}, PROXY: 'http://u:hunter2secret@h:1'}}\n"
    (profile_folder / "small.yaml").write_text(text)
    for words in (("use", "small", "--dry-run"), ("use", "small", "--dry-run", "--json")):
        assert not {word for word in (token, "hunter2secret") if word in sparkdash(*words).out}
    for form in ("podman", "quadlet"):
        told = sparkdash("profiles", "export", "small", "--as", form).out
        assert "4096" in told
        assert not {word for word in (token, "hunter2secret") if word in told}


def test_a_mistake_in_the_list_of_nodes_is_told_once_and_not_of_each_profile(sparkdash: Run) -> None:
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    (paths.config_dir() / "nodes.toml").write_text("[")
    done = sparkdash("profiles", "check")
    assert done.code != 0
    assert done.err.count("nodes.toml") == 1
    assert ".yaml" not in done.err


def test_the_rules_and_the_schema_are_printed(sparkdash: Run) -> None:
    assert "enforce-eager" in sparkdash("profiles", "check", "--rules").out
    assert "59 tok/s with, 26 without" in sparkdash("profiles", "check", "--rule", "enforce-eager").out
    assert sparkdash("profiles", "check", "--rule", "dead-env", "--json").json()[0]["versions"] == "0.26 and newer"
    done = sparkdash("profiles", "check", "--rule", "enforce-eagre")
    assert (done.code, "Did you mean enforce-eager?" in done.err) == (3, True)
    assert "json-schema.org" in sparkdash("profiles", "check", "--schema").json()["$schema"]


def test_a_dry_run_prints_the_exact_command(
    sparkdash: Run, profile_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("PATH", "/nowhere")
    planned = sparkdash("use", "little", "--dry-run", "--json").json()
    assert (planned["profile"], planned["runtime"]) == ("small", "podman")
    argv = planned["argv"]
    assert argv[:6] == ["podman", "run", "-d", "--replace", "--name", "sparkdash-small"]
    assert argv[argv.index("localhost/vllm:test") :][:6] == [
        "localhost/vllm:test", "serve", "/data/small", "--host", "127.0.0.1", "--port",
    ]  # fmt: skip
    assert argv[(at := argv.index("-v")) : at + 2] == ["-v", "/data/small:/data/small:ro"]
    assert "sparkdash.profile=small" in argv
    text = sparkdash("use", "small", "--dry-run").out
    assert shlex.split(text.replace("\\\n", "")) == argv


def test_a_dry_run_speaks_for_the_chosen_runtime(
    sparkdash: Run, profile_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKDASH_RUNTIME", "docker")
    docker = sparkdash("use", "small", "--dry-run", "--json").json()["argv"]
    assert (docker[0], "--gpus" in docker, "--replace" in docker) == ("docker", True, False)
    monkeypatch.setenv("SPARKDASH_RUNTIME", "process")
    plain = sparkdash("use", "small", "--dry-run", "--json").json()["argv"]
    assert plain[:3] == ["vllm", "serve", "/data/small"]


@pytest.mark.parametrize(("name", "code", "told"), [
    ("smal", 3, "Did you mean small?"),
    ("small/broken", 3, "no MTP head.\nHint: Use small instead."),
    ("bare", 2, "has no image"),
    ("there", 3, "which sparkdash does not start"),
], ids=str)  # fmt: skip
def test_a_dry_run_refuses_what_could_not_run(
    sparkdash: Run, profile_folder: Path, name: str, code: int, told: str
) -> None:
    (profile_folder / "bare.yaml").write_text(
        "profile: bare\nengine: vllm\ncommand: [vllm]\nmodels: {target: {path: /x}}\n"
    )
    (profile_folder / "there.yaml").write_text("profile: there\nengine: openai\nurl: http://127.0.0.1:9\n")
    done = sparkdash("use", name, "--dry-run")
    assert done.code == code
    assert told in done.err


def test_logs_are_those_of_the_engine_that_is_meant(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.log_lines = ["[red]not markup[/red]", "  indented"]
    assert sparkdash("logs", "x", "-n", "5", "-f").out == "[red]not markup[/red]\n  indented\n"
    assert sparkdash("logs").code == 3, "none runs"
    daemon.set(engines={"a": engine("a"), "f": engine("f", EngineState.FAILED, since=9e9)})
    sparkdash("logs")
    daemon.set(engines={"a": engine("a"), "b": engine("b", EngineState.LOADING)}, swap=swap("b"))
    sparkdash("logs")
    daemon.set(engines={"f": engine("f", EngineState.FAILED)}, swap=None)
    sparkdash("logs")
    assert [path for _, path, _ in daemon.calls if "logs" in path] == [
        "/api/logs/x?tail=5&follow=1", "/api/logs/a?follow=0", "/api/logs/b?follow=0", "/api/logs/f?follow=0",
    ]  # fmt: skip


def test_names_complete_from_the_daemon_or_the_files(
    daemon: FakeDaemon, profile_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.set(profiles=(summary("gpt-oss-120b"), summary("qwen")))
    assert complete_profile("gp") == ["gpt-oss-120b"]
    monkeypatch.setenv("SPARKDASH_URL", "http://127.0.0.1:1")
    assert complete_profile("sm") == ["small", "small/broken"]
    monkeypatch.setenv("SPARKDASH_PORT", "nonsense")
    assert complete_profile("") == []


@pytest.mark.parametrize(("words", "names"), [
    ("use gp", ["gpt-oss-120b"]), ("bench gp", ["gpt-oss-120b"]), ("bench gpt-oss-120b --suite see", ["seeds"]),
    ("bench show --suite see", ["seeds"]), ("doctor conti", ["contiguity"]), ("doctor --node spark", ["spark2"]),
    ("nodes copy gpt-oss-120b --to spark", ["spark2"]), ("keys revoke lap", ["laptop"]),
])  # fmt: skip
def test_the_shell_gets_its_completion(daemon: FakeDaemon, words: str, names: list[str]) -> None:
    daemon.set(profiles=(summary("gpt-oss-120b"), summary("qwen")))
    keyring.add_key(keyring.keys_file(), keyring.Key(name="laptop", sha256="0" * 64, created_at=0.0))
    node_file.add_node(node_file.nodes_file(), Node(name="spark2", ssh="me@spark2", host_key=f"ssh-ed25519 {'A' * 68}"))
    line = f"sparkdash {words}"
    asked = {"_SPARKDASH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    script = str(Path(sys.executable).parent / "sparkdash")
    done = subprocess.run([script], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.split(), done.stderr) == (names, "")


SERVICES = frozenset({EngineKind.OPENAI, EngineKind.REMOTE, EngineKind.SIM})
"""Engines without an image."""


@pytest.fixture
def no_images(stand_in: Run) -> None:
    stand_in("podman", 'for image; do echo "Error: $image: image not known" >&2; done; exit 125')


@pytest.fixture
def no_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


def summaries(sparkdash: Run) -> list[ProfileSummary]:
    told = sparkdash("profiles", "--json").json()
    assert told["problems"] == []
    return [ProfileSummary.model_validate(each) for each in told["profiles"]]


def listed(sparkdash: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], str]:
    """The row of each profile on a wide terminal, and what is said below the list."""
    monkeypatch.setenv("COLUMNS", "250")
    done = sparkdash("profiles")
    return {line.split()[0]: line for line in done.out.splitlines()[1:]}, done.err


def test_at_least_29_profiles_can_be_had_and_none_is_listed_in_a_state_that_is_unclear(
    sparkdash: Run, nobody: None, own_folders: Path, no_images: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = listed(sparkdash, monkeypatch)
    profiles = {each.name: each for each in summaries(sparkdash)}
    ones = [rows[each.name] for each in profiles.values() if each.nodes == 1]
    assert len([row for row in ones if row.endswith(("can be pulled", "can be built"))]) >= 29
    assert sorted(rows) == sorted(profiles)
    clear_states = ("can be pulled", "can be built", "no image", "no weights", "cannot run")
    for name, row in rows.items():
        profile = profiles[name]
        clear = [way.value for way in ImageOrigin if f" {way.value} " in row]
        assert clear or profile.cannot_run or profile.engine in SERVICES, row
        assert row.endswith((*clear_states, f"needs {profile.nodes} boxes")), row
        assert row.endswith("boxes") is (profile.nodes > 1 and not profile.cannot_run), row
        assert row.endswith("cannot run") is bool(profile.cannot_run), row


PULLED = {"kokoro": "can be pulled", "qwen3-asr-0.6b": "can be pulled", "qwen3-asr-1.7b": "can be built"}
SILENT = dict.fromkeys(("kokoro", "qwen3-asr-1.7b", "gemma-3-4b"), "podman silent")


@pytest.mark.parametrize(("podman", "runtime", "ends", "told"), [
    ("", "podman", PULLED, "podman is not installed"),
    ("echo 'Error: database is locked' >&2; exit 125", "podman", SILENT, "podman does not answer"),
    ("", "process", {"gemma-3-4b": "can be pulled"}, ""),
], ids=["no podman", "podman fails", "programs of this box"])  # fmt: skip
def test_the_list_says_what_each_profile_lacks_where_podman_is_no_help(
    sparkdash: Run, nobody: None, own_folders: Path, no_podman: None, stand_in: Run, monkeypatch: pytest.MonkeyPatch,
    podman: str, runtime: str, ends: dict[str, str], told: str,
) -> None:  # fmt: skip
    if podman:
        stand_in("podman", podman)
    monkeypatch.setenv("PATH", str(own_folders / "bin" if podman else own_folders / "empty"))
    monkeypatch.setenv("SPARKDASH_RUNTIME", runtime)
    rows, said = listed(sparkdash, monkeypatch)
    assert {name: rows[name].endswith(end) for name, end in ends.items()} == dict.fromkeys(ends, True), rows
    assert told in said
    assert ("podman" in said) is (runtime == "podman")
    assert " to build " in rows["qwen3-asr-1.7b"] or ends is not PULLED
    assert runtime == "podman" or not [row for row in rows.values() if "no source" in row]


def test_shipped_profiles_have_no_problem_where_engines_are_plain_processes(
    sparkdash: Run, nobody: None, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKDASH_RUNTIME", "process")
    done = sparkdash("profiles", "check")
    assert (done.code, "Error" in done.err) == (0, False), done.err


def test_several_gpus_are_too_many_for_a_spark_only(
    sparkdash: Run, profile_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (profile_folder / "two.yaml").write_text(
        "profile: two\nengine: vllm\nimage: vllm/vllm-openai:v0.24.0\nmodels: {target: {hf: a/b}}\n"
        "args: {tensor-parallel-size: 2}\n"
    )
    for count, told in ((1, True), (2, False)):
        (tmp_path / "gpus" / f"0000:0{count}:00.0").mkdir(parents=True)
        monkeypatch.setattr(check, "GPUS", tmp_path / "gpus")
        assert ("asks for 2 GPUs" in sparkdash("profiles", "check", str(profile_folder / "two.yaml")).err) is told


def test_an_unknown_name_starts_no_daemon(sparkdash: Run, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "is_serving", lambda _: False)
    monkeypatch.setattr(launch, "_comes_up", lambda _: False)
    monkeypatch.setattr(launch, "_start", lambda *_: pytest.fail("a daemon was started"))
    monkeypatch.delenv("SPARKDASH_URL", raising=False)
    done = sparkdash("use", "gpt-oss-120c")
    assert done.code != 0
    assert "gpt-oss-120b" in done.err, "what was meant"
    assert "starting one" not in done.err
