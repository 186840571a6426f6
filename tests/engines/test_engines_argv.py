"""From a profile to a command line, engine by engine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines import argv
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.flag_table import KnownFlags
from sparkdash.engines.registry import adapter
from sparkdash.errors import ProfileError

Make = Callable[..., Profile]


def _words(made: Profile, launch: LaunchContext) -> str:
    return " ".join(adapter(made.engine).container(made, launch).argv)


def test_values_become_flags_by_their_type() -> None:
    args = {"a-flag": True, "off": False, "none": None, "share": 0.87, "text": "10G", "cfg": {"k": [1]}, "c": 4}
    assert " ".join(argv.flag_words(args, {})) == '--a-flag --share 0.87 --text 10G --cfg {"k":[1]} -c 4'


def test_lists_become_what_the_engine_takes(profile: Make, launch: LaunchContext) -> None:
    args = {
        "cudagraph_capture_sizes": [1, 2],
        "middleware": ["a.A", "b.B"],
        "allowed-origins": ["*"],
        "lora-modules": [],
    }
    told = _words(profile(args=args), launch)
    assert told.endswith('--cudagraph_capture_sizes 1 2 --middleware a.A --middleware b.B --allowed-origins ["*"]')
    for kind, words in ((EngineKind.SGLANG, "--cuda-graph-bs 1 2"), (EngineKind.LLAMACPP, "--cuda-graph-bs [1,2]")):
        assert argv.flag_words({"cuda-graph-bs": [1, 2]}, {}, adapter(kind).lists) == words.split()


@pytest.mark.parametrize(("text", "size"), [
    ("10G", 10 * 2**30), ("10g", 10**10), ("1.5g", 1_500_000_000), ("1.5G", None), (" 4096 ", 4096), (7, 7),
    ("lots", None), (True, None),
])  # fmt: skip
def test_sizes_are_read_as_vllm_reads_them(text: argv.ArgValue, size: int | None) -> None:
    """A small letter counts in thousands; a fraction before a capital one is refused there."""
    assert argv.parse_size(text) == size


def test_placeholders_are_filled_inside_structures(profile: Make) -> None:
    models = profile(models={"target": {"path": "/m"}, "drafter": {"hf": "own/head"}}).models
    filled = argv.fill_placeholders({"model": "{drafter}", "file": ["{target}/x.json"], "else": "{other}"}, models)
    assert filled == {"model": "own/head", "file": ["/m/x.json"], "else": "{other}"}


@pytest.mark.parametrize(
    ("text", "tokens"), [(4096, 4096), ("32k", 32000), ("32K", 32768), ("1M", 2**20), ("auto", None), (True, None)]
)
def test_token_counts_are_read_as_engines_read_them(text: argv.ArgValue, tokens: int | None) -> None:
    assert argv.parse_token_count(text) == tokens


def test_adapters_are_given_to_vllm_by_name_and_to_llamacpp_by_their_place(
    profile: Make, launch: LaunchContext
) -> None:
    keys = {"serves": ["small", {"sql": "/loras/sql.gguf"}, {"poems": {"hf": "a/poems"}}]}
    vllm = profile(**keys, engine="vllm")
    assert (vllm.serves, vllm.adapters) == (("small", "sql", "poems"), ("sql", "poems"))
    words = _words(vllm, launch)
    assert f"--served-model-name {vllm.name} small auto " in words
    assert "--enable-lora --lora-modules sql=/loras/sql.gguf poems=a/poems" in words
    assert "/loras" in [mount.source for mount in adapter(vllm.engine).container(vllm, launch).mounts]
    llama = profile(**keys, engine="llamacpp")
    assert "--lora /loras/sql.gguf,a/poems --lora-init-without-apply" in _words(llama, launch)
    assert adapter(llama.engine).adapter_request(llama, "poems") == {"lora": [{"id": 1, "scale": 1.0}]}
    assert vllm.fingerprint != profile(serves=["small"], engine="vllm").fingerprint


def test_a_profile_can_switch_a_default_flag_off(profile: Make, launch: LaunchContext) -> None:
    assert "details" not in _words(profile(args={"enable_prompt_tokens_details": False}), launch)


def test_the_profile_s_command_replaces_the_program(profile: Make, launch: LaunchContext) -> None:
    assert _words(profile(command=("/opt/vllm", "serve")), launch).startswith("/opt/vllm serve /models/tiny --host")


READS = {"LLAMA_ARG_LOAD_MODE": "none", "LLAMA_ARG_NO_MMAP": "1"}
LLAMA: dict[str, Any] = {"engine": "llamacpp", "models": {"target": {"path": "/models/tiny.gguf"}}}


def _knowing(launch: LaunchContext, *names: str) -> LaunchContext:
    return replace(launch, flags=KnownFlags(tuple((f"--{name}",) for name in names)))


@pytest.mark.parametrize(
    ("known", "said", "variables"),
    [(None, "", READS), ("load-mode", " --load-mode none", {}), ("no-mmap", " --no-mmap", {}), ("other", "", {})],
)
def test_llamacpp_reads_files_into_memory_by_the_flag_that_its_build_has(
    profile: Make, launch: LaunchContext, known: str | None, said: str, variables: dict[str, str]
) -> None:
    """Mapped files are slow on a Spark. A build that is not known is told by variables: it would end at the other flag."""
    spec = adapter(EngineKind.LLAMACPP).container(profile(**LLAMA), _knowing(launch, known) if known else launch)
    assert shlex.join(spec.argv) == (
        f"llama-server --model /models/tiny.gguf --host 127.0.0.1 --port 18000 --alias tiny --metrics{said}"
    )
    assert {key: value for key, value in spec.env.items() if key.startswith("LLAMA")} == variables


@pytest.mark.parametrize(
    ("args", "said"),
    [({"no-mmap": False}, ""), ({"mmap": True}, " --mmap"), ({"load_mode": "dio"}, " --load_mode dio")],
)
@pytest.mark.parametrize("known", ["", "load-mode", "no-mmap"])
def test_a_profile_may_say_itself_how_llamacpp_reads_its_files(
    profile: Make, launch: LaunchContext, args: dict[str, Any], said: str, known: str
) -> None:
    made = profile(**LLAMA, args=args)
    spec = adapter(EngineKind.LLAMACPP).container(made, _knowing(launch, known) if known else launch)
    assert shlex.join(spec.argv).endswith(f"--metrics{said}")
    assert not [key for key in spec.env if key.startswith("LLAMA")]


def test_the_old_flag_in_a_profile_means_the_same_to_a_new_llamacpp(profile: Make, launch: LaunchContext) -> None:
    """`no-mmap: true` is what sparkdash would have said; for a build that is not known it stays as it was written."""
    made = profile(**LLAMA, args={"no-mmap": True})
    assert _words(made, _knowing(launch, "load-mode")).endswith("--metrics --load-mode none")
    assert _words(made, launch).endswith("--metrics --no-mmap")


QUIET = {
    "vllm": ("disable-access-log-for-endpoints", "/health,/metrics"),
    "sglang": ("uvicorn-access-log-exclude-prefixes", "/metrics /v1/models"),
}


@pytest.mark.parametrize(("engine", "version", "known", "quiet"), [
    ("vllm", "0.17.0", None, True), ("vllm", "1.0", None, True), ("vllm", "0.16.0", None, False),
    ("vllm", None, None, False), ("vllm", "0.33", False, False), ("vllm", None, True, True),
    ("sglang", "0.5.7", None, False), ("sglang", "0.5.8", None, True), ("sglang", None, None, False),
    ("sglang", None, True, True), ("sglang", "0.5.9", False, False),
])  # fmt: skip
def test_what_is_asked_every_second_is_kept_out_of_the_log(
    profile: Make, launch: LaunchContext, engine: str, version: str | None, known: bool | None, quiet: bool
) -> None:
    """An engine's own help goes before its version: an image may hold another one, which would not start with it."""
    flag, value = QUIET[engine]
    if known is not None:
        launch = _knowing(launch, *[flag] * known)
    assert (f"--{flag} {value}" in _words(profile(engine=engine, engine_version=version), launch)) is quiet


@pytest.mark.parametrize(("engine", "command", "asked"), [
    ("vllm", (), "vllm serve --help=all"),
    ("vllm", ("/opt/venv/bin/vllm", "serve"), "/opt/venv/bin/vllm serve --help=all"),
    ("vllm", ("bash", "/start.sh"), None), ("sglang", (), "python3 -m sglang.launch_server --help"),
    ("sglang", ("/venv/bin/python3.12", "-m", "sglang.launch_server"),
     "/venv/bin/python3.12 -m sglang.launch_server --help"),
    ("sglang", ("python3", "/serve.py"), None), ("llamacpp", ("/app/llama-server",), "/app/llama-server --help"),
    ("llamacpp", ("nice", "llama-server"), None), ("trtllm", (), "trtllm-serve serve --help"),
    ("trtllm", ("/opt/trtllm-serve", "serve"), "/opt/trtllm-serve serve --help"), ("sim", (), None),
])  # fmt: skip
def test_only_the_engine_s_own_program_is_asked_for_its_flags(
    profile: Make, engine: str, command: tuple[str, ...], asked: str | None
) -> None:
    """A wrapper may pay no heed to the word, and serve."""
    help_ = adapter(EngineKind(engine)).help(profile(engine=engine, command=command))
    assert (help_ and " ".join(help_.argv)) == asked


def test_llamacpp_fetches_hub_models_itself(profile: Make, launch: LaunchContext) -> None:
    assert "--hf-repo own/model:Q4" in _words(
        profile(engine="llamacpp", models={"target": {"hf": "own/model:Q4"}}), launch
    )
    with pytest.raises(ProfileError, match="revision abc"):
        _words(profile(engine="llamacpp", models={"target": {"hf": "own/model", "revision": "abc"}}), launch)


def test_trtllm_s_options_file_is_visible_to_it(profile: Make, launch: LaunchContext) -> None:
    made = profile(engine="trtllm", args={"extra_llm_api_options": "/etc/spark/trt.yaml", "max_seq_len": 4096})
    spec = adapter(EngineKind.TRTLLM).container(made, launch)
    assert spec.argv[:6] == ("trtllm-serve", "/models/tiny", "--host", "127.0.0.1", "--port", "18000")
    assert ("/etc/spark/trt.yaml", True) in [(m.target, m.read_only) for m in spec.mounts]


def test_the_simulated_engine_is_our_own_program_with_its_profile(profile: Make, bare: LaunchContext) -> None:
    made = profile(engine="sim", image=None, models={})
    spec = adapter(EngineKind.SIM).container(made, bare)
    assert spec.argv[:7] == (sys.executable, "-P", "-m", "sparkdash.sim", "--port", "18000", "--profile-json")
    assert Profile.model_validate_json(spec.argv[7]) == made
    assert spec.devices == ()


def test_a_server_at_a_url_is_not_started(profile: Make, launch: LaunchContext) -> None:
    made = profile(engine="openai", image=None, models={}, url="http://127.0.0.1:1234")
    assert not adapter(EngineKind.OPENAI).managed
    with pytest.raises(ProfileError, match=r"127\.0\.0\.1:1234"):
        adapter(EngineKind.OPENAI).container(made, launch)


def test_a_server_s_own_model_name_is_what_it_is_asked_for(profile: Make) -> None:
    made = profile(engine="openai", models={"target": {"hf": "llama3"}}, url="http://127.0.0.1:1234")
    assert adapter(EngineKind.OPENAI).served_names(made) == ("llama3",)


MODEL_LESS = (EngineKind.SIM, EngineKind.GENERIC)  # a described server may have its model in its image


@pytest.mark.parametrize("kind", [k for k in EngineKind if adapter(k).managed and k not in MODEL_LESS])
def test_a_profile_without_a_model_is_refused(kind: EngineKind, profile: Make, launch: LaunchContext) -> None:
    with pytest.raises(ProfileError, match="no model to serve") as caught:
        adapter(kind).container(profile(engine=kind, models={}), launch)
    assert "target" in (caught.value.hint or "")


def test_every_kind_has_an_adapter_that_knows_itself() -> None:
    assert [adapter(kind).kind for kind in EngineKind] == list(EngineKind)


def test_speculative_flags_of_old_recipes_are_refused_with_the_rewrite(profile: Make, launch: LaunchContext) -> None:
    """No vLLM since 0.16 has --speculative-model; the hint is the line to write."""
    old = {"speculative-model": "{drafter}", "speculative-method": "eagle3", "num-speculative-tokens": 1}
    with pytest.raises(ProfileError) as caught:
        _words(profile(args=old), launch)
    assert caught.value.code == "unknown_flag"
    assert 'speculative-config: {method: eagle3, model: "{drafter}", num_speculative_tokens: 1}' in (
        caught.value.hint or ""
    )


@pytest.mark.parametrize(("version", "flag", "known"), [
    ("0.16.0", "moe-backend", False), ("0.19.0", "moe-backend", True), ("0.17.0", "swap-space", True),
    ("0.19.0", "swap_space", False), (None, "swap-space", True),
])  # fmt: skip
def test_flags_are_checked_against_the_engine_s_version(
    version: str | None, flag: str, known: bool, profile: Make, launch: LaunchContext
) -> None:
    made = profile(engine_version=version, args={flag: "x"})
    if known:
        assert f"--{flag} x" in _words(made, launch)
    else:
        with pytest.raises(ProfileError, match=f"{flag.replace('_', '-')}, which vLLM {version} does not have"):
            _words(made, launch)


@pytest.mark.parametrize(("kind", "args", "context", "speculation"), [
    ("vllm", {"max-model-len": "32K", "speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}, 32768,
     "mtp k=2"),
    ("vllm", {"max_model_len": 100, "speculative-config": '{"method": "ngram"}'}, 100, "ngram"),
    ("vllm", {"spec-method": "eagle3", "spec-tokens": 3}, None, "eagle3 k=3"),
    ("sglang", {"context-length": 8192, "speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}, 8192,
     "eagle3 k=3"),
    ("llamacpp", {"ctx-size": 8192, "parallel": 4, "model-draft": "{drafter}", "draft-max": 8}, 2048, "draft k=8"),
    ("llamacpp", {"c": 8192, "parallel": 4, "kv-unified": True, "spec-type": "ngram-simple"}, 8192, "ngram-simple"),
    ("trtllm", {"max_seq_len": 4096}, 4096, None),
    ("sim", {"max-model-len": 4096, "speculative-config": {"method": "eagle3", "num_speculative_tokens": 1}}, 4096,
     "eagle3 k=1"),
])  # fmt: skip
def test_context_and_speculation_are_known_without_starting(
    kind: str, args: dict[str, argv.ArgValue], context: int | None, speculation: str | None, profile: Make
) -> None:
    made = profile(engine=kind, args=args)
    assert adapter(made.engine).context(made) == context
    assert adapter(made.engine).speculation(made) == speculation


@pytest.mark.parametrize("kind", list(EngineKind))
def test_the_profile_s_own_context_is_the_fallback(kind: EngineKind, profile: Make) -> None:
    assert adapter(kind).context(profile(engine=kind, context=777)) == 777
