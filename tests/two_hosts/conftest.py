"""Two hosts with real sshd and podman, made once per test file's worker, and daemons on host a."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_sshd import LocalSshd
from two_hosts import SSHD, HostDaemon, TwoHosts, daemon_that_knows_b


@pytest.fixture(scope="session")
def hosts() -> Iterator[TwoHosts]:
    if os.geteuid() != 0 or not (Path(SSHD).exists() and shutil.which("ip") and shutil.which("catatonit")):
        pytest.skip("two hosts need root, sshd, iproute2 and catatonit: run tests/two_hosts/setup.sh")
    with TwoHosts.running("two") as made:
        yield made


@pytest.fixture
def new_host_daemon(hosts: TwoHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., HostDaemon]]:
    """Makes daemons on host a; afterwards they are ended, and no container is left on either host."""
    made: list[HostDaemon] = []

    def make(**settings: Any) -> HostDaemon:
        made.append(HostDaemon(tmp_path_factory.mktemp("daemon"), hosts, **settings))
        return made[-1]

    yield make
    hosts.link(up=True)
    for daemon in made:
        daemon.close()
    hosts.clear_containers()


@pytest.fixture
def daemon(hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon]) -> HostDaemon:
    return daemon_that_knows_b(hosts, new_host_daemon(node_silent_s=5))


@pytest.fixture(scope="module")
def machine() -> Iterator[LocalSshd]:
    """One sshd for all tests of a file; a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="sshd", dir="/tmp") as folder:
        made = LocalSshd(Path(folder))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def sshd(machine: LocalSshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSshd]:
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    machine.stop()
    machine.extra = ""
    yield machine.start()
    machine.stop()
