"""Import, export, import again: the same profile."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash import catalog
from sparkdash.domain.profile import Profile

Run = Callable[..., Any]
DATA = Path(__file__).parents[1] / "data" / "imports"

SCRIPTS = ("turbo.sh", "turbo_eagle3.sh", "turbo_mtp1.sh", "turbo_mtp2.sh", "openai_image.sh", "sglang.sh", "llamacpp.sh", "trtllm.sh",
           "wrapped.sh", "by_name.sh", "cpu.sh", "lists.sh")  # fmt: skip


@pytest.fixture
def shelf(own_folders: Path) -> Path:
    """The owner's folder of profiles, empty; those shipped are left out."""
    (own_folders / "config" / "config.toml").write_text("shipped_profiles = false\n")
    folder = own_folders / "config" / "profiles"
    folder.mkdir()
    return folder


def again(sparkdash: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> Profile:
    """The profile of that name exported, imported from stdin, and loaded."""
    exported = sparkdash("profiles", "export", name, "--as", form)
    assert exported.code == 0, exported.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(exported.out.encode())))
    second = shelf.parent / "second"
    second.mkdir()
    done = sparkdash("profiles", "import", "-", "-o", str(second))
    assert done.code == 0, done.err
    found = catalog.load_catalog([second])
    assert found.problems == ()
    (profile,) = found.profiles.values()
    return profile


def launched(profile: Profile) -> dict[str, Any]:
    """All that the formats can carry."""
    return profile.model_dump(exclude={"source", "about", "memory", "request"})


def first(sparkdash: Run, shelf: Path, file: str) -> Profile:
    assert sparkdash("profiles", "import", str(DATA / file), "-o", str(shelf)).code == 0
    return next(iter(catalog.load_catalog([shelf]).profiles.values()))


@pytest.mark.parametrize(
    ("file", "form"),
    [(file, form) for file in SCRIPTS for form in ("podman", "llama-swap")]
    + [(file, form) for file in ("recipe_v2.yaml", "recipe_v1.yaml") for form in ("sparkrun", "podman", "llama-swap")]
    + [("repro", form) for form in ("podman", "sparkrun", "llama-swap")],
)
def test_a_profile_comes_back_as_it_was(
    sparkdash: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch, file: str, form: str
) -> None:
    """Name, aliases, image, models, flags, environment, mounts and all: the fingerprint too."""
    one = first(sparkdash, shelf, file)
    two = again(sparkdash, shelf, monkeypatch, one.name, form)
    assert launched(two) == launched(one)
    assert two.fingerprint == one.fingerprint


def test_a_llama_swap_model_comes_back_with_what_it_sets_in_requests(
    sparkdash: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That format has a place for them, and for the line about it."""
    text = (DATA / "llama_swap.yaml").read_text()
    (tmp_path / "coder.yaml").write_text(text[: text.index("  local-gguf:")])
    one = first(sparkdash, shelf, str(tmp_path / "coder.yaml"))
    two = again(sparkdash, shelf, monkeypatch, "coder", "llama-swap")
    assert two.model_dump(exclude={"source"}) == one.model_dump(exclude={"source"})
    assert (two.request_set, two.request_strip) == ({"temperature": 0.2}, ("top_k",))


def test_a_variant_comes_back_alone(sparkdash: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launch is the same; its name has no slash, as it is a family of its own now."""
    first(sparkdash, shelf, "repro")
    one = catalog.load_catalog([shelf]).profiles["repro/ar"]
    two = again(sparkdash, shelf, monkeypatch, "repro/ar", "podman")
    assert two.name == "repro-ar"
    assert launched(two) | {"name": "", "serves": ()} == launched(one) | {
        "name": "",
        "serves": (),
        "models": two.model_dump()["models"],
    }


def test_a_quadlet_is_a_unit(sparkdash: Run, shelf: Path) -> None:
    """Device, mounts, variables and command; on the host's network, and never restarted."""
    first(sparkdash, shelf, "turbo_eagle3.sh")
    text = sparkdash("profiles", "export", "vllm-turbo", "--as", "quadlet").out
    assert "[Container]\nContainerName=sparkdash-vllm-turbo\nImage=localhost/vllm-turbo:dual\nNetwork=host\n" in text
    assert "AddDevice=nvidia.com/gpu=all\nShmSize=8g\nVolume=/data/tensordata:/data/tensordata\n" in text
    assert "Environment=VLLM_USE_FLASHINFER_MOE_FP4=0\nEntrypoint=vllm\nExec=serve /data/tensordata/Qwen3" in text
    assert '--speculative-config "{\\"model\\":\\"/data/tensordata/Qwen3-Coder-30B-A3B-EAGLE3\\",' in text
    assert "Restart" not in text


def test_what_a_recipe_cannot_say_is_named(sparkdash: Run, shelf: Path) -> None:
    """A comment names the keys that are lost."""
    first(sparkdash, shelf, "turbo.sh")
    text = sparkdash("profiles", "export", "vllm-turbo", "--as", "sparkrun").out
    assert text.startswith("# Has no place for: mounts (see `sparkdash profiles show vllm-turbo`).\n")
