"""A docker daemon of one test worker: its own images, containers and socket, and no network of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import own_run
import pytest


class DockerDaemon:
    """Real dockerd below the run's folder; `docker` of this process and its children talks to it."""

    def __init__(self) -> None:
        if os.geteuid() or not shutil.which("dockerd"):
            pytest.skip("a docker daemon of the tests' own needs root and dockerd (sh tests/podman/docker.sh)")
        self._folder = Path(tempfile.mkdtemp(prefix="docker-", dir=os.environ[own_run.VARIABLE]))
        self._socket = f"unix://{self._folder}/socket"
        self._process: subprocess.Popen[bytes] | None = None
        os.environ["DOCKER_HOST"] = self._socket
        self.start()

    def start(self, *, live_restore: bool = False) -> None:
        """Start it, and return once it answers. `live_restore`: its containers outlive it."""
        words = [
            "dockerd", "--host", self._socket, "--data-root", f"{self._folder}/data", "--exec-root",
            f"{self._folder}/exec", "--pidfile", f"{self._folder}/pid", "--containerd-namespace", "sparkdash-test",
            "--bridge=none", "--iptables=false", "--ip6tables=false", "--shutdown-timeout=1",
        ]  # fmt: skip
        ready = self._folder / "log"
        with ready.open("wb") as log:
            self._process = subprocess.Popen(
                [*words, *(["--live-restore"] if live_restore else [])], stdout=log, stderr=subprocess.STDOUT
            )
        ask = ["docker", "version", "--format", "{{.Server.Version}}"]
        while subprocess.run(ask, capture_output=True).returncode:
            assert self._process.poll() is None, ready.read_text()

    def stop(self) -> None:
        """End it with SIGTERM, as systemd does; without live restore its containers end first."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=60)

    def end(self) -> None:
        """End it with all its containers, and leave nothing mounted."""
        left = subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True).stdout.split()
        subprocess.run(["docker", "rm", "-f", *left], capture_output=True)
        self.stop()
        os.environ.pop("DOCKER_HOST")
        own_run.remove_folder(self._folder)
