"""What programs list, kept by what they are made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import Mount, Profile
from sparkdash.engines.flag_table import KnownFlags
from sparkdash.host.flag_store import FlagStore, identity

KNOWN = KnownFlags((("-h", "--help"), ("--load-mode",)))


def spec(*argv: str, image: str | None = "i:1", **more: Any) -> ContainerSpec:
    return ContainerSpec(name="n", image=image, argv=argv or ("llama-server", "--help"), port=0, **more)


def test_flags_hold_for_the_same_image_only(tmp_path: Path) -> None:
    """A later daemon finds them; another image under the same name, or another program in it, has none."""
    FlagStore(tmp_path / "flags").keep(spec(), "id 1", KNOWN)
    later = FlagStore(tmp_path / "flags")
    assert later.recall(spec(), "id 1") == KNOWN
    assert later.recall(spec(), "id 2") is None
    assert later.recall(spec("other", "--help"), "id 1") is None
    assert later.last(spec()) == KNOWN


def test_an_image_s_program_is_its_image_unless_it_is_mounted(tmp_path: Path) -> None:
    """Then it is also the file: the image's id does not change with it."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/llama-server"
    program.write_text("one")
    mounts = (Mount(source="/", target="/opt"), Mount(source=str(tmp_path / "bin"), target="/opt/own"))
    assert identity(spec(mounts=mounts), "id") == "id"
    assert identity(spec("/usr/bin/llama-server", mounts=mounts), "id") == "id"
    mounted = spec("/opt/own/llama-server", "--help", mounts=mounts)
    before = identity(mounted, "id")
    assert before is not None
    assert before.startswith(f"id {program} 3 ")
    os.utime(program, (1, 1))
    assert identity(mounted, "id") not in (None, before)
    program.unlink()
    assert identity(mounted, "id") is None


def test_a_program_of_the_box_is_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the search path finds it, behind links too; after an upgrade nothing is known of it."""
    real = tmp_path / "b9000"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    (tmp_path / "llama-server").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path))
    plain = spec(image=None)
    found = identity(plain, "")
    assert found is not None
    assert str(real) in found
    store = FlagStore(tmp_path / "flags")
    store.keep(plain, found, KNOWN)
    assert store.last(plain) == KNOWN
    profile = Profile(name="a", engine="llamacpp", image="i:1")
    assert store.of(profile, containerised=False) == KNOWN
    assert store.of(profile, containerised=True) is None
    real.write_text("#!/bin/sh\nexit 1\n")
    assert store.last(plain) is None
    real.unlink()
    assert identity(plain, "") is None


def test_a_file_that_cannot_be_used_is_none(tmp_path: Path) -> None:
    store = FlagStore(tmp_path / "flags")
    store.keep(spec(), "id", KNOWN)
    (file,) = (tmp_path / "flags").iterdir()
    file.write_text("{")
    assert store.recall(spec(), "id") is None
    (tmp_path / "file").touch()
    FlagStore(tmp_path / "file").keep(spec(), "id", KNOWN)
    assert FlagStore(tmp_path / "file").last(spec()) is None
