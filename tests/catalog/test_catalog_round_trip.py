"""Exported profiles come back equal: the same image, command, variables and mounts, in both formats.

podman's generator reads an exported quadlet. It comes with podman 4.4 and newer, which many machines lack; its answer was
recorded with podman 5.4.2, by

    .venv/bin/python tests/catalog/test_catalog_round_trip.py /usr/libexec/podman/quadlet

and tests hold that the same unit is still written, and that systemd would start the profile's command from the answer.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkdash.catalog import importers, load_catalog
from sparkdash.catalog.quadlet_unit import quadlet_unit
from sparkdash.cli.profiles.import_export import ExportFormat, _exported
from sparkdash.domain.container import LABEL_PROFILE, LABEL_SERVES, ContainerSpec
from sparkdash.domain.profile import EngineKind, Mount, Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter
from sparkdash.errors import ProfileError
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


QUADLET = Path(__file__).parents[1] / "data" / "quadlet"
ODD = Profile(name="odd", engine=EngineKind.VLLM, about="100 % odd\nwords")
ODD_SPEC = ContainerSpec(
    name="sparkdash-odd",
    image="localhost/vllm:test",
    argv=(
        "/opt/my vllm", "serve", "/data/a b", "--json", '{"a":"x\'y","b":"$HOME %h"}', "--lines", "one\ntwo",
        "--back", "c:\\d", "--list", "a;b", "--tab", "a\tb", "--word", "é`x`#", "--price", "$5", "--last", "99%",
    ),
    port=18000,
    env={"PLAIN": "1", "SAYS": 'say "hi" $X %i', "EMPTY": "", "LINES": "one\ntwo"},
    env_from=("HF_TOKEN",),
    mounts=(Mount(source="/home/own er/$cache", target="/cache", read_only=False), Mount(source="/data", target="/data")),
    tmpfs=("/run/$x",),
    devices=("nvidia.com/gpu=all",),
    shm_size="8g",
)  # fmt: skip


def test_the_recorded_unit_is_the_one_that_is_written() -> None:
    """Else the record below is of something else: make it anew."""
    assert quadlet_unit(ODD, ODD_SPEC) + "\n" == (QUADLET / "odd.container").read_text()


def test_systemd_starts_the_profile_s_own_command() -> None:
    """Every word, variable and mount arrives as it was, through the generator's quoting and systemd's."""
    words = systemd_words((QUADLET / "odd.execstart").read_text().strip())
    image = words.index("localhost/vllm:test")
    options, command = words[:image], words[image + 1 :]
    assert (options[options.index("--entrypoint") + 1], *command) == ODD_SPEC.argv
    assert set(after("--env", options)) == {*(f"{name}={text}" for name, text in ODD_SPEC.env.items()), "HF_TOKEN"}
    assert after("-v", options) == ["/home/own er/$cache:/cache", "/data:/data:ro"]
    assert (after("--tmpfs", options), after("--device", options)) == (["/run/$x"], ["nvidia.com/gpu=all"])
    assert (after("--shm-size", options), after("--network", options)) == (["8g"], ["host"])


@pytest.mark.parametrize("word", ["", ";"])
def test_a_word_that_the_generator_loses_is_refused(word: str) -> None:
    """5.4.2 drops an empty word with all that follow it, and leaves a lone semicolon bare, which ends systemd's command."""
    with pytest.raises(ProfileError, match="a quadlet cannot") as caught:
        quadlet_unit(ODD, ODD_SPEC.model_copy(update={"argv": ("vllm", "serve", "--x", word, "--y")}))
    assert "--as podman" in caught.value.text()


def systemd_words(line: str) -> list[str]:
    """A command line as systemd.service(5) reads it: quotes, C escapes, %% and $$."""
    words = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', line)
    assert ";" not in words
    plain = (
        re.sub(r"\\(.)", lambda hit: {"n": "\n", "t": "\t"}.get(hit[1], hit[1]), word.strip('"'))
        if word[0] == '"'
        else word
        for word in words
    )
    return [word.replace("$$", "$").replace("%%", "%") for word in plain]


def after(flag: str, words: list[str]) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == flag]


def record(generator: str) -> None:
    """Ask the generator, and keep the unit with what it says."""
    QUADLET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "odd.container"
        unit.write_text(quadlet_unit(ODD, ODD_SPEC) + "\n")
        environment = {**os.environ, "QUADLET_UNIT_DIRS": folder}
        argv = [generator, "--dryrun", "--user"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        (start,) = re.findall(r"^ExecStart=(.*)$", done.stdout, re.MULTILINE)
        (QUADLET / "odd.container").write_text(unit.read_text())
        (QUADLET / "odd.execstart").write_text(start + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
