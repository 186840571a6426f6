"""Exported profiles come back equal: the same image, command, variables and mounts, in both formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkdash.catalog import importers, load_catalog
from sparkdash.cli.profiles.import_export import ExportFormat, _exported
from sparkdash.domain.container import LABEL_PROFILE, LABEL_SERVES, ContainerSpec
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter
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
    assert not [str(remark) for remark in imported.remarks if remark.kind == "unknown"]


@pytest.mark.parametrize("form", list(ExportFormat))
def test_what_no_container_carries_is_named(form: ExportFormat) -> None:
    text = """{profile: x, engine: llamacpp, image: "a/b:1", serves: [lora: /l/a.gguf], about: why,
        models: {target: {path: /m/x.gguf}}, modes: {calm: {temperature: 0}}}"""
    (profile,) = importers.load_imported({"x": text}).profiles.values()
    assert "# In the profile alone: about, adapters, modes." in _exported(form, profile, container(profile))


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
