"""What sparkdash exports comes back equal: the same image, command, variables and mounts, in both formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkdash.catalog import importers, load_catalog
from sparkdash.catalog.importers.values import KEPT, read_comments
from sparkdash.cli.profiles.import_export import ExportFormat, _exported
from sparkdash.domain.container import LABEL_PROFILE, LABEL_SERVES, ContainerSpec
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter, adapter_of
from sparkdash.paths import shipped_profiles

DATA = Path(__file__).parents[1] / "data" / "imports"
NOT_CARRIED = {"source"}
LAUNCH = LaunchContext(port=8000, containerised=True, hf_home="/home/me/.cache/huggingface", cache_dir="/home/me/cache")
PROFILES = {
    name: profile
    for name, profile in load_catalog([shipped_profiles()]).profiles.items()
    if adapter(profile.engine).managed
    and profile.engine is not EngineKind.GENERIC
    and profile.image
    and profile.sim is None
    and profile.nodes == 1
}


def container(profile: Profile) -> ContainerSpec:
    return adapter(profile.engine).container(profile, LAUNCH)


def comparable(spec: ContainerSpec, profile: Profile) -> dict[str, Any]:
    """All of a container that its formats carry; flags in any order."""
    argv = [word for word in spec.argv if word not in (profile.name, *profile.serves, "auto")]
    lines: list[str] = []
    for word in argv:
        if word.startswith("--") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return {
        "image": spec.image,
        "argv": sorted(lines),
        "env": {key: value for key, value in spec.env.items() if not value.startswith("/sparkdash/")},
        "env_from": sorted(spec.env_from),
    }


def kept(profile: Profile) -> dict[str, Any]:
    return profile.model_dump(include=set(KEPT))


def _place(spec: ContainerSpec) -> dict[str, Any]:
    return {
        "mounts": sorted(str(mount) for mount in spec.mounts),
        "tmpfs": spec.tmpfs,
        "devices": spec.devices,
        "shm_size": spec.shm_size,
    }


@pytest.mark.parametrize("form", list(ExportFormat))
@pytest.mark.parametrize("name", sorted(PROFILES))
def test_what_is_exported_comes_back_equal(name: str, form: ExportFormat) -> None:
    profile = PROFILES[name]
    spec = container(profile)
    imported = importers.import_profiles(_exported(form, profile, spec), "back")
    (document,) = imported.profiles
    found = importers.load_imported({"back": importers.yaml_text(document, imported, "x")})
    assert found.problems == (), yaml.safe_dump(document)
    again = container(found.profiles["back"])
    assert comparable(again, found.profiles["back"]) == comparable(spec, profile)
    assert set(profile.serves) <= set(found.profiles["back"].serves)
    assert _place(again) == _place(spec)
    assert kept(found.profiles["back"]) == kept(profile)
    assert not [str(remark) for remark in imported.remarks if remark.kind == "unknown"]


HIDDEN = {
    "kv": """{profile: x, engine: llamacpp, image: "a/b:1", keep_entrypoint: true, keep_kv: {max_gib: 8},
        models: {target: {path: /m/x.gguf}}, args: {ctx-size: 4096}}""",
    "llama": """{profile: x, engine: llamacpp, image: "a/b:1", serves: [y, lora: /l/a.gguf],
        models: {target: {path: /m/x.gguf}}, args: {ctx-size: 4096}}""",
    "vllm": """{profile: x, engine: vllm, image: "a/b:1", serves: [{lora: {hf: a/lora}}, {own: /l/own}, y],
        models: {target: {hf: a/b}}, args: {max-model-len: 4096}, mounts: [{source: /s, target: /t}]}""",
}


@pytest.mark.parametrize("form", list(ExportFormat))
@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_what_the_container_hides_comes_back_with_its_comments(text: str, form: ExportFormat) -> None:
    """An entrypoint that is kept, conversations, and adapters: as an alias one would answer without its weights."""
    (first,) = importers.load_imported({"x": text}).profiles.values()
    spec = adapter_of(first).container(first, LAUNCH)
    back = importers.import_profiles(_exported(form, first, spec))
    (second,) = importers.load_imported({"x": importers.yaml_text(back.profiles[0], back, "x")}).profiles.values()
    assert second.model_dump(exclude=NOT_CARRIED) == first.model_dump(exclude=NOT_CARRIED)


def test_comments_of_an_export_are_read_within_their_keys_only() -> None:
    text = '# sparkdash engine: "sim"\n# sparkdash modes: {"cut\n# sparkdash context: 4096\n  # sparkdash memory: {}\n'
    assert read_comments(text + f"# sparkdash request: {'[' * 1000}{']' * 1000}\n") == {"context": 4096}
    line = '# sparkdash serves: [{"a": 5}, {"b": {"path": 3}}]\npodman run vllm/vllm-openai:v1 --model a/b\n'
    assert importers.import_profiles(line).profiles[0]["serves"] == [{"a": 5}, {"b": {"path": 3}}]


@pytest.mark.parametrize("form", list(ExportFormat))
@pytest.mark.parametrize("file", sorted(path.name for path in DATA.glob("*.sh")))
def test_an_imported_script_comes_back_with_its_fingerprint(file: str, form: ExportFormat) -> None:
    """Models, aliases and lists too: a launch that was learnt stays the same launch."""
    imported = importers.import_profiles((DATA / file).read_text())
    (first,) = importers.load_imported(
        {"x": importers.yaml_text(imported.profiles[0], imported, "x")}
    ).profiles.values()
    labels = {LABEL_PROFILE: first.name, LABEL_SERVES: ",".join(first.serves)} if first.serves else {}
    back = importers.import_profiles(_exported(form, first, container(first).replace(labels=labels)))
    (second,) = importers.load_imported({"x": importers.yaml_text(back.profiles[0], back, "x")}).profiles.values()
    assert second.model_dump(exclude=NOT_CARRIED) == first.model_dump(exclude=NOT_CARRIED)
    assert second.fingerprint == first.fingerprint
