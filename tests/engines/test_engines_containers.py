"""Paths and devices of the box that a container sees, and the labels that mark it as ours."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.containers import CACHE_TARGET, HF_TARGET, KV_TARGET, LaunchContext
from sparkdash.engines.registry import adapter, adapter_of
from sparkdash.errors import ProfileError
from sparkdash.host.podman import argv

Make = Callable[..., Profile]


def _mounts(made: Profile, launch: LaunchContext) -> list[tuple[str, str, bool]]:
    return [(m.source, m.target, m.read_only) for m in adapter(made.engine).container(made, launch).mounts]


def cache_of(weights: str) -> tuple[str, str, bool]:
    return (f"/home/owner/.cache/sparkdash/engines/localhost-tiny@tag@{weights}", CACHE_TARGET, False)


def test_each_image_has_a_folder_of_caches_for_each_model(profile: Make, launch: LaunchContext) -> None:
    """By the image's id, which changes under the same name, and the weights' revision."""
    model = {"target": {"hf": "own/model", "revision": "89abcdef" * 5}}
    tagged = profile(image="nvcr.io/nvidia/vllm:25.09-py3", models=model)
    sources = [
        _mounts(tagged, launch)[-1],
        _mounts(tagged, replace(launch, image_id="sha256:" + "0123456789abcdef" * 4))[-1],
    ]
    assert [source.removeprefix(launch.cache_dir) for source, _, _ in sources] == [
        "/engines/nvcr.io-nvidia-vllm-25.09-py3@tag@own-model-89abcdef89ab",
        "/engines/nvcr.io-nvidia-vllm-25.09-py3@0123456789ab@own-model-89abcdef89ab",
    ]
    assert {target for _, target, _ in sources} == {CACHE_TARGET}


def test_every_compiler_of_an_engine_keeps_its_work_in_the_cache(
    profile: Make, launch: LaunchContext, bare: LaunchContext
) -> None:
    """An image's own variables would point into the container, which goes. A process has its owner's caches."""
    env = adapter(EngineKind.SGLANG).container(profile(engine="sglang"), launch).env
    assert sorted(env) == [
        "B12X_COMPILE_CACHE_DIR", "CUDA_CACHE_PATH", "CUTE_DSL_CACHE_DIR", "DG_JIT_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE", "SGLANG_DG_CACHE_DIR", "TILELANG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TRTLLM_DG_CACHE_DIR", "TVM_FFI_CACHE_DIR", "VLLM_CACHE_ROOT",
        "XDG_CACHE_HOME",
    ]  # fmt: skip
    assert all(value.startswith(CACHE_TARGET) for value in env.values())
    assert adapter(EngineKind.SGLANG).container(profile(engine="sglang"), bare).env == {}


def test_io_uring_is_for_profiles_that_ask(profile: Make, launch: LaunchContext) -> None:
    """By a file of each node; a launch without the key keeps its fingerprint."""
    plain, asks = profile(), profile(security="io_uring")
    command = argv.run("podman", adapter(asks.engine).container(asks, launch))
    assert command[command.index("--security-opt") + 1] == f"seccomp={launch.cache_dir}/seccomp-io_uring.json"
    assert "--security-opt" not in argv.run("podman", adapter(plain.engine).container(plain, launch))
    assert plain.fingerprint != asks.fingerprint


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_an_image_keeps_its_entrypoint_where_the_profile_says_so(
    profile: Make, launch: LaunchContext, engine: str
) -> None:
    """NVIDIA's chooses CUDA's compatibility libraries; a launch without the key keeps its fingerprint."""
    plain, kept = profile(engine=engine), profile(engine=engine, keep_entrypoint=True)
    spec = adapter(kept.engine).container(kept, launch)
    command = argv.run("podman", spec)
    assert "--entrypoint" not in command
    assert command[command.index(str(spec.image)) + 1 :] == list(spec.argv)
    assert plain.fingerprint != kept.fingerprint
    assert "--entrypoint" in argv.run("podman", adapter(plain.engine).container(plain, launch))


def test_a_parent_folder_covers_its_children(profile: Make, launch: LaunchContext) -> None:
    """Neither an explicit mount nor another model's folder is mounted over again."""
    models = {"target": {"path": "/data/all/a"}, "drafter": {"path": "/data/all/a/head"}}
    made = profile(models=models, args={"x": "{drafter}"})
    assert _mounts(made, launch) == [("/data/all/a", "/data/all/a", True), cache_of("data-all-a")]
    covered = made.model_copy(update={"mounts": profile(mounts=[{"source": "/mnt", "target": "/data"}]).mounts})
    assert _mounts(covered, launch) == [("/mnt", "/data", True), cache_of("data-all-a")]


@pytest.mark.parametrize(("path", "seen"), [
    ("/hub/models--own--m/snapshots/abc", "/hub/models--own--m"), ("/models/q/big-00001-of-00003.gguf", "/models/q"),
    ("/models/plain/", "/models/plain"),
])  # fmt: skip
def test_what_a_model_links_to_is_visible_too(path: str, seen: str, profile: Make, launch: LaunchContext) -> None:
    """A hub snapshot is links into its repository, and a split GGUF has sister files."""
    assert _mounts(profile(models={"target": {"path": path}}), launch)[0] == (seen, seen, True)


def test_hub_models_bring_the_owner_s_cache(profile: Make, launch: LaunchContext, bare: LaunchContext) -> None:
    made = profile(models={"target": {"hf": "own/model"}})
    assert _mounts(made, launch) == [("/home/owner/.cache/huggingface", HF_TARGET, False), cache_of("own-model")]
    assert adapter(made.engine).container(made, launch).env["HF_HOME"] == HF_TARGET
    assert adapter(made.engine).container(made, bare).env == {"HF_HOME": "/home/owner/hf"}


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
def test_an_engine_that_keeps_conversations_is_told_where(
    engine: str, profile: Make, launch: LaunchContext, bare: LaunchContext
) -> None:
    """The profile's own folder of the owner, beside no other; without the key the engine writes none."""
    kept = profile(engine=engine, engine_version="0.32", keep_kv={"max_gib": 8})
    assert (f"{launch.cache_dir}/kv/cafe/tiny", KV_TARGET, False) in _mounts(kept, launch)
    assert KV_TARGET in " ".join(adapter(kept.engine).container(kept, launch).argv)
    plain = profile(engine=engine)
    assert KV_TARGET not in str(adapter(plain.engine).container(plain, launch))
    if engine == "llamacpp":  # a process has the folder itself
        words = adapter(kept.engine).container(kept, replace(bare, labels=launch.labels)).argv
        assert words[words.index("--slot-save-path") + 1] == f"{bare.cache_dir}/kv/cafe/tiny"


def test_the_profile_s_environment_wins_over_the_caches(profile: Make, launch: LaunchContext) -> None:
    made = profile(env={"TRITON_CACHE_DIR": "/elsewhere", "MODEL": "{target}"})
    env = adapter(made.engine).container(made, launch).env
    assert (env["TRITON_CACHE_DIR"], env["MODEL"], env["XDG_CACHE_HOME"]) == (
        "/elsewhere",
        "/models/tiny",
        CACHE_TARGET,
    )


def test_a_gpu_is_handed_over_unless_the_profile_declines(profile: Make, launch: LaunchContext) -> None:
    assert adapter(EngineKind.VLLM).container(profile(), launch).devices == ("nvidia.com/gpu=all",)
    assert adapter(EngineKind.VLLM).container(profile(gpu=False), launch).devices == ()


def test_a_plain_process_needs_nothing_of_a_container(profile: Make, bare: LaunchContext) -> None:
    spec = adapter(EngineKind.VLLM).container(profile(image=None), bare)
    assert (spec.image, spec.mounts, spec.devices, spec.shm_size) == (None, (), (), None)


def test_a_container_needs_an_image(profile: Make, launch: LaunchContext) -> None:
    with pytest.raises(ProfileError, match="no image") as caught:
        adapter(EngineKind.VLLM).container(profile(image=None), launch)
    assert caught.value.code == "image_missing"


def test_the_fingerprint_changes_with_the_launch_and_only_with_it(profile: Make) -> None:
    """Words about a profile do not restart its engine; a flag does. The value itself is pinned: it is on running containers."""
    made = profile(args={"max-model-len": 4096})
    same = profile(args={"max-model-len": 4096}, about="other words", request={"temperature": 0}, on_stuck="tell")
    assert made.fingerprint == same.fingerprint == "d6778fbe99f8"
    assert made.fingerprint != profile(args={"max-model-len": 8192}).fingerprint
    assert made.fingerprint != profile(args={"max-model-len": 4096}, serves=["other"]).fingerprint


LAUNCH = LaunchContext(port=8123, containerised=True, hf_home="/hf", cache_dir="/cache")


def generic(**values: Any) -> Profile:
    return Profile.model_validate({"name": "mine", "engine": "generic", "image": "localhost/mine:1", **values})


def test_the_port_and_the_name_stand_where_the_command_has_their_places() -> None:
    made = generic(
        command=["serve", "--bind", "127.0.0.1:{port}"],
        args={"alias": "{name}", "model": "{target}"},
        env={"PORT": "{port}"},
        models={"target": {"path": "/models/m.gguf"}},
    )
    spec = adapter_of(made).container(made, LAUNCH)
    assert spec.argv == ("serve", "--bind", "127.0.0.1:8123", "--alias", "mine", "--model", "/models/m.gguf")
    assert (spec.env["PORT"], spec.port, spec.inner_port) == ("8123", 8123, None)


def test_a_fixed_port_is_published_on_the_loopback_of_a_network_of_its_own() -> None:
    """An image whose server cannot be told a port listens on all addresses, so it gets no host network."""
    made = generic(server={"port": 8000, "stop_signal": "SIGINT"})
    words = argv.run("podman", adapter_of(made).container(made, LAUNCH))
    assert "127.0.0.1:8123:8000" in words
    assert "host" not in words
    assert "--entrypoint" not in words
    assert words[words.index("--stop-signal") + 1] == "SIGINT"
    assert words[-1] == "localhost/mine:1"


def test_the_image_keeps_its_entrypoint_when_the_profile_says_so() -> None:
    """`command` then holds only arguments."""
    made = generic(command=["serve", "owner/model"], args={"port": "{port}"}, server={"keep_entrypoint": True})
    words = argv.run("podman", adapter_of(made).container(made, LAUNCH))
    assert "--entrypoint" not in words
    assert words[-5:] == ["localhost/mine:1", "serve", "owner/model", "--port", "8123"]


@pytest.mark.parametrize(
    ("containerised", "values"),
    [(True, {"command": ["serve"]}), (False, {"command": ["serve"], "server": {"port": 8000}})],
)
def test_a_server_that_nobody_tells_its_port_is_refused(containerised: bool, values: dict[str, Any]) -> None:
    """A plain process shares the ports of the box, so its port cannot be fixed."""
    made = generic(**values)
    with pytest.raises(ProfileError, match="port") as caught:
        adapter_of(made).container(made, replace(LAUNCH, containerised=containerised))
    assert "{port}" in (caught.value.hint or "")


def test_log_lines_and_failures_are_read_by_the_profiles_patterns() -> None:
    """Stages and causes come from the profile; common causes still count."""
    made = generic(
        server={
            "port": 1,
            "log": [{"stage": "weights", "pattern": r"loaded (?P<done>\d+) of (?P<total>\d+)"}],
            "failures": [{"pattern": "no lane", "message": "It found no lane", "code": "out_of_memory"}],
        }
    )
    adapter = adapter_of(made)
    progress = adapter.read_log("loaded 3 of 4 parts")
    assert progress is not None
    assert (progress.stage, progress.fraction) == ("weights", 0.75)
    assert adapter.classify(["no lane left"], 1).message == "It found no lane: no lane left"
    assert adapter.classify(["CUDA out of memory"], 1).code == "out_of_memory"


def test_metrics_are_found_out_named_or_absent() -> None:
    """Without a word of the profile telemetry looks; with names it reads them; with no path it leaves the server."""
    found = adapter_of(generic(server={"port": 1})).metrics
    named = adapter_of(
        generic(server={"port": 1, "metrics": {"names": {"running": "r", "moving": ["a", "b"]}}})
    ).metrics
    none = adapter_of(generic(server={"port": 1, "metrics": {"path": None}})).metrics
    assert not found.recognised
    assert (named.path, named.running, named.moving) == ("/metrics", ("r",), ("a", "b"))
    assert none.recognised
    assert none.path is None


def test_only_what_changes_the_engine_changes_the_fingerprint() -> None:
    """A new log pattern restarts nothing."""
    base = generic(server={"port": 1})
    assert base.engine is EngineKind.GENERIC
    assert generic(server={"port": 1, "health": "/up", "log": []}).fingerprint == base.fingerprint
    assert generic(server={"port": 2}).fingerprint != base.fingerprint
