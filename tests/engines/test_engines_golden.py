"""The exact container of every shipped profile, kept as text. SPARKDASH_GOLDEN=write makes the files anew."""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sparkdash import catalog
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import Profile
from sparkdash.engines.containers import CACHE_TARGET, LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.paths import shipped_profiles
from tests.engines.conftest import HEAD, WORKER

GOLDEN = Path(__file__).parent / "golden"
MORE = tuple(
    WORKER.replace(
        name=f"spark{rank}",
        address=f"192.168.100.{9 + rank}",
        hf_home=f"/home/{rank}/hf",
        cache_dir=f"/home/{rank}/cache",
    )
    for rank in (3, 4)
)
NAMES = sorted(p.name for p in catalog.load_catalog([shipped_profiles()]).profiles.values() if p.image)
"""Profiles with a container: all but those that cannot run because no source gives an image."""


def _text(spec: ContainerSpec) -> str:
    lines = [f"name {spec.name}", f"image {spec.image}", f"shm {spec.shm_size}", f"devices {' '.join(spec.devices)}"]
    lines += [f"ulimit {limit}" for limit in spec.ulimits]
    lines += [f"mount {m.source} -> {m.target} {'ro' if m.read_only else 'rw'}" for m in spec.mounts]
    own = [(key, value) for key, value in sorted(spec.env.items()) if not value.startswith(CACHE_TARGET)]
    lines += [f"env {key}={value}" for key, value in own]  # those of the caches are the same for all
    lines += [f"label {key}={value}" for key, value in sorted(spec.labels.items())]
    return "\n".join([*lines, "", *_paragraphs(spec.argv)]) + "\n"


def _paragraphs(argv: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for word in argv:
        if word.startswith("-") or not lines:
            lines.append(word)
        else:
            lines[-1] += " " + shlex.quote(word)
    return lines


@pytest.fixture(scope="module")
def shipped() -> Iterator[Mapping[str, Profile]]:
    """Shipped profiles as their owner's daemon reads them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", "/home/owner")
        yield catalog.load_catalog([shipped_profiles()]).profiles


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_profile_gives_its_known_container(
    name: str, launch: LaunchContext, shipped: Mapping[str, Profile]
) -> None:
    """Image, mounts, environment, labels and every word of the command line are as written down."""
    profile = shipped[name]
    if profile.nodes > 1:
        launch = replace(launch, nodes=(HEAD, WORKER, *MORE)[: profile.nodes], master_port=29600)
    spec = adapter_of(profile).container(profile, launch)
    text = _text(spec) + "".join(f"\non {worker.node}:\n{_text(worker)}" for worker in spec.workers)
    file = GOLDEN / f"{name.replace('/', '.')}.txt"
    if os.environ.get("SPARKDASH_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert sorted(file.stem for file in GOLDEN.iterdir()) == sorted(name.replace("/", ".") for name in NAMES)
