"""A new user's first hour: an empty home, a hub and a registry of images over real HTTP, and somebody's profile."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_hub import FakeHub, Repo
from image_registry import ImageRegistry

NAME = "firsthour"
HEADER = json.dumps({"w": {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]}}).encode()
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(4096)

pytestmark = [pytest.mark.podman, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    files = {"config.json": b'{"model_type": "qwen3"}', "model.safetensors": WEIGHTS}
    with FakeHub(repos={"org/hour": Repo(files)}) as found:
        yield found


@pytest.fixture(scope="module")
def registry(hostfs: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    with ImageRegistry(tmp_path_factory.mktemp("registry") / "image", hostfs.image, "hour") as found:
        yield found


@pytest.fixture(scope="module")
def profile(tiny: Callable[..., str], registry: ImageRegistry) -> str:
    """Somebody's profile for that model and image."""
    need = {"weights_gib": 0.1, "kv_gib": 0.1, "overhead_gib": 0.1, "source": "measured: 30 MiB in all"}
    return tiny(NAME, image=registry.image, more={"models": {"target": {"hf": "org/hour"}}, "memory": need})


@pytest.fixture(scope="module", params=["podman", pytest.param("docker", marks=pytest.mark.full)])
def box(
    request: pytest.FixtureRequest, new_daemon: Callable[..., Any], hub: FakeHub, registry: ImageRegistry
) -> Iterator[Any]:
    """Folders of a user who has nothing yet, with podman or docker; the daemon is not started."""
    if request.param == "docker":
        request.getfixturevalue("docker_daemon")
    daemon = new_daemon(runtime=request.param, reserve_gib=0.5, port=0, stop_grace_s=2)
    home = daemon.root / "home"
    home.mkdir()
    daemon.configure(lambda text: text + f"hf_home = {json.dumps(str(home / 'hf'))}\n")
    registries = registry.settings(daemon.root / "registries.conf")
    daemon.env |= {"HF_ENDPOINT": hub.url, "CONTAINERS_REGISTRIES_CONF": str(registries), "HOME": str(home)}
    yield daemon
    daemon.sparkdash("stop", "--daemon", "--all")


def test_one_command_leads_from_a_profile_to_a_first_token(
    box: Any, profile: str, hub: FakeHub, registry: ImageRegistry
) -> None:
    box.write(NAME, profile)
    steps = ("--only", "model", "--only", "first-token")
    done = box.sparkdash("setup", "--yes", "--model", NAME, *steps, timeout=200)
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{registry.image} is here." in done.stdout
    assert "org/hour is here" in done.stdout
    assert re.search(rf"First token after \d+\.\d\d s; {NAME} said: ", done.stdout)
    assert any("/blobs/sha256:" in path for path in registry.asked)
    assert hub.got("GET", "model.safetensors")

    again = box.sparkdash("setup", "--json", "--model", NAME, *steps)
    outlooks = {step["step"]: step["outlook"] for step in json.loads(again.stdout)["steps"]}
    assert outlooks["model"] == "done"
