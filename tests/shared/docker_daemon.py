"""A docker daemon of one test worker: its own images, containers and socket.

Root's daemon has no network of its own; the one of any other user is rootless, with a network in RootlessKit.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import own_run
import pytest

ROOTLESS = "/usr/share/docker.io/contrib/dockerd-rootless.sh"
"""Where Debian has it; it needs rootlesskit, slirp4netns and uidmap, and XDG_RUNTIME_DIR of the user."""


class DockerDaemon:
    """Real dockerd below the run's folder; `docker` of this process and its children talks to it."""

    def __init__(self) -> None:
        self.rootless = os.geteuid() != 0
        if not shutil.which("dockerd") or (self.rootless and not shutil.which("rootlesskit")):
            pytest.skip("a docker daemon needs dockerd (sh tests/podman/docker.sh), and of a user rootlesskit as well")
        self._folder = Path(tempfile.mkdtemp(prefix="docker-", dir=os.environ[own_run.VARIABLE]))
        self._socket = f"unix://{self._folder}/socket"
        self._process: subprocess.Popen[bytes] | None = None
        os.environ["DOCKER_HOST"] = self._socket
        self.start()

    def start(self, *, live_restore: bool = False) -> None:
        """Start it, and return once it answers. `live_restore`: its containers outlive it."""
        network = [] if self.rootless else ["--bridge=none", "--iptables=false", "--ip6tables=false"]
        words = [
            ROOTLESS if self.rootless else "dockerd", "--host", self._socket, "--data-root", f"{self._folder}/data", "--exec-root",
            f"{self._folder}/exec", "--pidfile", f"{self._folder}/pid", "--containerd-namespace", "sparkdash-test",
            *network, "--shutdown-timeout=1",
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
        self._process.terminate()
        self._process.wait(timeout=60)

    def end(self) -> None:
        """End it with all its containers, and leave nothing mounted."""
        left = subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True).stdout.split()
        subprocess.run(["docker", "rm", "-f", *left], capture_output=True)
        self.stop()
        os.environ.pop("DOCKER_HOST")
        if self.rootless:  # files of containers' users, which are not this one
            subprocess.run(["rootlesskit", "rm", "-rf", self._folder], check=True)
        own_run.remove_folder(self._folder)
