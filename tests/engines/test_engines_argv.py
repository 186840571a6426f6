"""From a profile to a command line, engine by engine."""

import shlex
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines import argv
from sparkdash.engines.containers import LaunchContext
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


READS = {"LLAMA_ARG_LOAD_MODE": "none", "LLAMA_ARG_NO_MMAP": "1"}
LLAMA: dict[str, Any] = {"engine": "llamacpp", "models": {"target": {"path": "/models/tiny.gguf"}}}


@pytest.mark.parametrize("args", [{}, {"no-mmap": True}, {"no_mmap": True}])
def test_llamacpp_reads_files_into_memory_whichever_flag_its_build_has(
    profile: Make, launch: LaunchContext, args: dict[str, Any]
) -> None:
    """Mapped files are slow on a Spark. A build ends at the flag that it does not know, and ignores such a variable."""
    spec = adapter(EngineKind.LLAMACPP).container(profile(**LLAMA, args=args), launch)
    assert shlex.join(spec.argv) == (
        "llama-server --model /models/tiny.gguf --host 127.0.0.1 --port 18000 --alias tiny --metrics"
    )
    assert {key: value for key, value in spec.env.items() if key.startswith("LLAMA")} == READS


@pytest.mark.parametrize(
    ("args", "said"),
    [({"no-mmap": False}, ""), ({"mmap": True}, " --mmap"), ({"load_mode": "dio"}, " --load_mode dio")],
)
def test_a_profile_may_say_itself_how_llamacpp_reads_its_files(
    profile: Make, launch: LaunchContext, args: dict[str, Any], said: str
) -> None:
    spec = adapter(EngineKind.LLAMACPP).container(profile(**LLAMA, args=args), launch)
    assert shlex.join(spec.argv).endswith(f"--metrics{said}")
    assert not [key for key in spec.env if key.startswith("LLAMA")]


QUIET = {
    "vllm": ("disable-access-log-for-endpoints", "/health,/metrics"),
    "sglang": ("uvicorn-access-log-exclude-prefixes", "/metrics /v1/models"),
}


@pytest.mark.parametrize(("engine", "version", "quiet"), [
    ("vllm", "0.17.0", True), ("vllm", "1.0", True), ("vllm", "0.16.0", False), ("vllm", None, False),
    ("sglang", "0.5.7", False), ("sglang", "0.5.8", True), ("sglang", None, False),
])  # fmt: skip
def test_what_is_asked_every_second_is_kept_out_of_the_log(
    profile: Make, launch: LaunchContext, engine: str, version: str | None, quiet: bool
) -> None:
    flag, value = QUIET[engine]
    assert (f"--{flag} {value}" in _words(profile(engine=engine, engine_version=version), launch)) is quiet


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


@pytest.mark.parametrize(("kind", "args", "context", "speculation"), [
    ("vllm", {"max-model-len": "32K", "speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}, 32768,
     "mtp k=2"),
    ("vllm", {"max_model_len": 100, "speculative-config": '{"method": "ngram"}'}, 100, "ngram"),
    ("vllm", {"spec-method": "eagle3", "spec-tokens": 3}, None, "eagle3 k=3"),
    ("sglang", {"context-length": 8192, "speculative-algorithm": "EAGLE3", "speculative-num-steps": 3}, 8192,
     "eagle3 k=3"),
    ("llamacpp", {"ctx-size": 8192, "parallel": 4, "model-draft": "{drafter}", "draft-max": 8}, 2048, "draft k=8"),
    ("llamacpp", {"c": 8192, "parallel": 4, "kv-unified": True, "spec-type": "ngram-simple"}, 8192, "ngram-simple"),
    ("trtllm", {"max_seq_len": 4096}, 4096, None), ("tensorfold", {"drafter": "z-lab/Qwen3.8-27B-DFlash2"}, None, "dflash2"),
    ("tensorfold", {"mtp-drafts": 6}, None, "mtp k=6"), ("tensorfold", {"no-drafts": True}, None, None),
    ("tensorfold", {}, None, None),
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
