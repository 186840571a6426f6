"""The Containerfile, built on a base made on the spot, serves the demo."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.full, pytest.mark.podman, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BASE, IMAGE = "localhost/sparkdash-test-base:1", "localhost/sparkdash-test:1"
NAME = f"sparkdash-test-demo-{os.getpid()}"


def podman(*argv: str) -> str:
    """Run podman; its output. What it says on failure goes into the assertion."""
    done = subprocess.run(["podman", *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def image(hostfs: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The image, and the volumes that its empty base needs. It stays, for its layers: the next run installs only what changed."""
    python = Path(os.path.realpath(sys.executable)).parent
    base = tmp_path_factory.mktemp("base")
    (base / "Containerfile").write_text(f"FROM {hostfs.image}\nENV PATH={python}:/usr/sbin:/usr/bin:/sbin:/bin\n")
    podman("build", "--quiet", "--tag", BASE, str(base))
    places = [mount["source"] for mount in hostfs.mounts()]
    # where this machine's pip finds packages is the machine's business: its settings come along
    places += [place for place in os.environ.get("PIP_FIND_LINKS", "").split() if Path(place).is_dir()]
    volumes = [flag for place in places for flag in ("--volume", f"{place}:{place}:ro")]
    settings = [f"--env={k}={v}" for k, v in os.environ.items() if k.startswith("PIP_")]
    before = podman("images", "--quiet", IMAGE).strip()
    podman(
        "build", "--quiet", "--network", "host", "--build-arg", f"BASE={BASE}", *volumes, *settings,
        "--file", str(ROOT / "Containerfile"), "--tag", IMAGE, str(ROOT),
    )  # fmt: skip
    if before and before != podman("images", "--quiet", IMAGE).strip():
        podman("rmi", before)
    return volumes


@pytest.fixture
def removed() -> Iterator[None]:
    """The container is removed after the test, not by podman's `--rm`: that may be sooner than its own `run` has the exit code."""
    yield
    podman("rm", "--force", "--ignore", "--time", "0", NAME)


@pytest.mark.usefixtures("removed")
def test_the_image_serves_the_demo_and_ends_cleanly(image: list[str]) -> None:
    """The demo prints its address, answers as simulated, and SIGTERM ends it with its engines."""
    argv = ["podman", "run", "--name", NAME, "--network", "host", *image, IMAGE, "demo", "--headless"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = next(text for text in child.stdout if "serves" in text)
        url = re.search(r"(http://\S+)/v1", line)
        assert url is not None
        with urllib.request.urlopen(f"{url[1]}/api/state", timeout=60) as answer:
            state = json.load(answer)
        assert state["daemon"]["simulated"] is True
        assert {p["name"] for p in state["profiles"]} >= {"gpt-oss-120b", "qwen3-coder-30b-nvfp4/eagle3"}
        podman("stop", "--time", "60", NAME)
        assert podman("wait", NAME).strip() == "0"
