"""Images and weights on their way to the other host, over real ssh and into a real podman."""

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from copied_trees import contents
from two_hosts import HostDaemon, TwoHosts, profile, registry, until_reachable, up

pytestmark = [pytest.mark.full, pytest.mark.podman]

MIB = 1 << 20
MODEL = "/root/model"
IMAGE = "localhost/sparkdash-test-copied:1"
SLOW = 20 * MIB
"""Bytes per second of the slowed link."""


@pytest.fixture
def daemon(hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon]) -> HostDaemon:
    """A daemon that is not started, in whose registry host b is; the commands do without it."""
    made = new_host_daemon(cache_dir="/root/.cache/sparkdash")
    (made.root / "config" / "nodes.toml").write_text(registry(hosts, {"spark2": "b"}))
    return made


@pytest.fixture
def model(hosts: TwoHosts) -> Iterator[Path]:
    """100 MB of weights on host a, as a folder there and here."""
    folder = hosts.folder / "a" / "home" / "model"
    folder.mkdir()
    some = random.Random(7)
    for part in (1, 2):
        (folder / f"m-0000{part}-of-00002.safetensors").write_bytes(some.randbytes(48 * MIB))
    (folder / "config.json").write_text("{}")
    yield folder
    hosts.slow_link(None)
    for host in ("a", "b"):
        hosts.run(host, "rm", "-rf", MODEL)


def copied(hosts: TwoHosts) -> Path:
    return hosts.folder / "b" / "home" / "model"


def weights_only(daemon: HostDaemon) -> None:
    daemon.write("big", json.dumps(profile(1, "big", models={"target": {"path": MODEL}})))


def documents(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def begin_copy(daemon: HostDaemon, what: str = "--weights-only") -> subprocess.Popen[str]:
    words = daemon.words("-m", "sparkdash", "nodes", "copy", "big", what, "--json")
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_sent(copying: subprocess.Popen[str], share: float) -> dict[str, Any]:
    """Read the progress until that share was sent."""
    for line in copying.stdout:
        step = json.loads(line)
        if step.get("step") == "send" and step["came_bytes"] >= share * step["total_bytes"]:
            return dict(step)
    raise AssertionError(copying.stderr.read() if copying.stderr else "")


def test_weights_reach_the_other_host_and_a_second_copy_sends_nothing(
    daemon: HostDaemon, hosts: TwoHosts, model: Path
) -> None:
    weights_only(daemon)
    told = daemon.sparkdash("nodes", "copy", "big", "--weights-only", "--dry-run", "--json")
    assert json.loads(told.stdout)["missing_bytes"] == 96 * MIB + 2, told.stderr
    assert not copied(hosts).exists()
    done = daemon.sparkdash("nodes", "copy", "big", "--weights-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"The weights {MODEL} are on spark2." in done.stdout
    assert contents(copied(hosts)) == contents(model)
    again = daemon.sparkdash("nodes", "copy", "big", "--weights-only", "--to", "spark2")
    assert "spark2 has all that big needs" in again.stdout


def test_a_link_cut_in_the_middle_is_waited_for_and_the_copy_goes_on(
    daemon: HostDaemon, hosts: TwoHosts, model: Path
) -> None:
    weights_only(daemon)
    hosts.slow_link(SLOW)
    copying = begin_copy(daemon)
    until_sent(copying, 0.3)
    hosts.link(up=False)
    os.set_blocking(copying.stdout.fileno(), True)
    time.sleep(12)  # longer than ssh's keepalive takes to find a dead link
    hosts.link(up=True)
    out, err = copying.communicate(timeout=100)
    assert copying.returncode == 0, err
    assert documents(out)[-1]["done"]
    assert contents(copied(hosts)) == contents(model)


def test_a_disk_that_fills_up_during_the_copy_is_named_and_its_part_is_removed(
    daemon: HostDaemon, hosts: TwoHosts, model: Path
) -> None:
    weights_only(daemon)
    hosts.slow_link(SLOW)
    hosts.run("b", "mkdir", "-p", MODEL)
    hosts.run("b", "mount", "-t", "tmpfs", "-o", "size=110m", "tmpfs", MODEL)
    try:
        copying = begin_copy(daemon)
        until_sent(copying, 0.1)
        hosts.run("b", "fallocate", "-l", "70M", f"{MODEL}/other")
        out, err = copying.communicate(timeout=60)
        assert copying.returncode == 5, out
        assert "disk_full" in err + out
        left = hosts.run("b", "ls", "-A", MODEL).stdout
        assert ".safetensors\n" not in left, left
    finally:
        hosts.run("b", "umount", MODEL)


def build(hosts: TwoHosts, host: str, *layers: int) -> str:
    """Build an image with layers of so many bytes; its id."""
    context = hosts.folder / host / "home" / "copied"
    context.mkdir(exist_ok=True)
    for number, size in enumerate(layers):
        (context / f"layer{number}").write_bytes(random.Random(number + size).randbytes(size))
    lines = ["FROM scratch", *(f"COPY layer{number} /layer{number}" for number in range(len(layers)))]
    (context / "Containerfile").write_text("\n".join(lines) + "\n")
    hosts.run(host, "podman", "build", "-q", "--timestamp", "0", "-t", IMAGE, "/root/copied", timeout=120)
    return image_id(hosts, host) or ""


def image_id(hosts: TwoHosts, host: str, name: str = IMAGE) -> str | None:
    done = hosts.run(host, "podman", "image", "inspect", name, "--format", "{{.Id}}", check=False)
    return None if done.returncode else done.stdout.strip()


@pytest.fixture
def image(hosts: TwoHosts) -> Iterator[str]:
    """Id of an image of 40 MB on host a."""
    yield build(hosts, "a", 30 * MIB, 10 * MIB)
    for host in ("a", "b"):
        hosts.run(host, "podman", "rmi", "--force", "--all", check=False)
        hosts.run(host, "podman", "build", "-q", "--timestamp", "0", "-t", TwoHosts.image, "/root/image")


def test_an_image_has_the_same_id_and_name_on_the_other_host_and_takes_the_place_of_an_older_one(
    daemon: HostDaemon, hosts: TwoHosts, image: str
) -> None:
    (daemon.profiles / "big.yaml").write_text(json.dumps(profile(1, "big", image=IMAGE)))
    done = daemon.sparkdash("nodes", "copy", "big", "--image-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert image_id(hosts, "b") == image
    again = daemon.sparkdash("nodes", "copy", "big", "--image-only")
    assert "spark2 has all that big needs" in again.stdout
    newer = build(hosts, "a", 30 * MIB, 10 * MIB, 1 * MIB)
    told = json.loads(daemon.sparkdash("nodes", "copy", "big", "--image-only", "--dry-run", "--json").stdout)
    assert told["items"][0]["replaces"] == image
    sent = daemon.sparkdash("nodes", "copy", "big", "--image-only", "--json")
    steps = [step["step"] for step in documents(sent.stdout)]
    assert steps[-1] == "load", sent.stdout + sent.stderr
    assert image_id(hosts, "b") == newer


def test_an_image_whose_copy_was_killed_is_copied_by_the_next_one(
    daemon: HostDaemon, hosts: TwoHosts, image: str
) -> None:
    (daemon.profiles / "big.yaml").write_text(json.dumps(profile(1, "big", image=IMAGE)))
    hosts.slow_link(SLOW)
    copying = begin_copy(daemon, "--image-only")
    until_sent(copying, 0.5)
    hosts.run("a", "pkill", "-KILL", "-f", "[n]odes copy big")
    copying.communicate(timeout=30)
    assert image_id(hosts, "b") is None
    hosts.slow_link(None)
    done = daemon.sparkdash("nodes", "copy", "big", "--image-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert image_id(hosts, "b") == image
    assert hosts.run("b", "sh", "-c", "pgrep -f [p]odman.load", check=False).stdout == ""


def test_a_swap_to_both_hosts_copies_image_and_weights_first_and_tells_so(
    daemon: HostDaemon, hosts: TwoHosts, model: Path
) -> None:
    hosts.run("b", "podman", "rmi", "--force", TwoHosts.image, check=False)
    (daemon.profiles / "pair.yaml").write_text(json.dumps(profile(models={"target": {"path": MODEL}})))
    hosts.slow_link(SLOW)
    daemon.start()
    until_reachable(daemon)
    beginning = subprocess.Popen(daemon.words("-m", "sparkdash", "use", "pair"), stderr=subprocess.PIPE, text=True)

    def copies(state: dict[str, Any]) -> bool:
        return any(
            f"weights {MODEL} to reach spark2: " in (swap["waits_for"] or "") for swap in [state["swap"]] if swap
        )

    seen = daemon.until_state(copies)
    assert seen["swap"]["phase"] == "copy"
    _, told = beginning.communicate(timeout=120)
    assert beginning.returncode == 0, told
    assert daemon.state()["engines"]["pair"]["nodes"] == ["local", "spark2"]
    assert contents(copied(hosts)) == contents(model)
    assert image_id(hosts, "a", TwoHosts.image) == image_id(hosts, "b", TwoHosts.image)


def test_a_swap_is_refused_before_anything_is_stopped_when_neither_host_has_the_weights(
    daemon: HostDaemon, hosts: TwoHosts
) -> None:
    (daemon.profiles / "first.yaml").write_text(json.dumps(profile(1, "first", node="local")))
    daemon.write("other", json.dumps(profile(1, "other", node="spark2", models={"target": {"path": "/root/nothing"}})))
    daemon.start()
    until_reachable(daemon)
    up(daemon, "first")
    done = daemon.sparkdash("use", "other")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "The weights /root/nothing of other are neither complete on spark2 nor on this box" in done.stderr
    assert "nodes copy other --to spark2" in done.stderr
    assert daemon.state()["engines"]["first"]["state"] == "ready"
