"""The exact container of every shipped profile, kept as text. SPARKDASH_GOLDEN=write makes the files anew."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from sparkdash import catalog
from sparkdash.domain.container import ContainerSpec
from sparkdash.engines.adapter import LaunchContext
from sparkdash.engines.registry import adapter
from sparkdash.paths import shipped_profiles

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(p.name for p in catalog.load_catalog([shipped_profiles()]).profiles.values() if p.image)
"""What cannot run because no source gives an image has no container; what cannot for another reason has one."""


def _text(spec: ContainerSpec) -> str:
    lines = [f"name {spec.name}", f"image {spec.image}", f"shm {spec.shm_size}", f"devices {' '.join(spec.devices)}"]
    lines += [f"mount {m.source} -> {m.target} {'ro' if m.read_only else 'rw'}" for m in spec.mounts]
    lines += [f"env {key}={value}" for key, value in sorted(spec.env.items())]
    lines += [f"label {key}={value}" for key, value in sorted(spec.labels.items())]
    return "\n".join([*lines, "", *_paragraphs(spec.argv)]) + "\n"


def _paragraphs(argv: tuple[str, ...]) -> list[str]:
    """One flag with its values a line."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("-") or not lines:
            lines.append(word)
        else:
            lines[-1] += " " + shlex.quote(word)
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_profile_gives_its_known_container(
    name: str, launch: LaunchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Image, mounts, environment, labels and every word of the command line are as written down."""
    monkeypatch.setenv("HOME", "/home/owner")
    profile = catalog.load_catalog([shipped_profiles()]).profiles[name]
    text = _text(adapter(profile.engine).container(profile, launch))
    file = GOLDEN / f"{name.replace('/', '.')}.txt"
    if os.environ.get("SPARKDASH_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_no_golden_file_is_left_over() -> None:
    """Each file belongs to a profile that is shipped."""
    assert sorted(file.stem for file in GOLDEN.iterdir()) == sorted(name.replace("/", ".") for name in NAMES)
