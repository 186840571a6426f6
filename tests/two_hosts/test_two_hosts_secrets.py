"""Variables with secrets reach the containers of both hosts, and no command line, log or error of either."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from two_hosts import HostDaemon, TwoHosts, begin, profile, registry, until_reachable, up

pytestmark = [pytest.mark.full, pytest.mark.podman]

PAIR, PINNED, BROKEN = "secretpair", "secretthere", "secretbroken"
SECRETS = {
    "HF_TOKEN": "hf_" + "Q7" * 17,
    "PAIR_API_KEY": "two  words 'quoted' \"twice\" $HOME `id` \\n and a tail ",
    "PAIR_PASSWORD": "first line\nsecond line of it",
    "PAIR_LICENCE": "no word of its name says so",
}
MARKS = ("Q7Q7Q7", "two  words 'quoted'", "second line of it", "no word of its name")
"""A part of each secret that nothing else contains."""
TAKEN = [*SECRETS, "PAIR_ABSENT"]
"""Variables that the profiles take; the daemon has not the last one."""
EXEC = (
    "import json, os, sys; more = json.load(open(sys.argv[1]));"
    "os.execve(sys.executable, [sys.executable, '-m', 'sparkdash', 'serve', '--port', '0'], {**os.environ, **more})"
)
"""Becomes the daemon with the variables of a file, which therefore stand in no command line of the test."""


@pytest.fixture
def recorded(hosts: TwoHosts) -> Iterator[Path]:
    """File to which ssh and podman of both hosts write each command line, before they run it."""
    file, programs = hosts.folder / "argv", hosts.folder / "recording"
    programs.mkdir(exist_ok=True)
    for name in ("ssh", "podman", "sh"):
        script = f'#!/bin/bash\nprintf \'%s\\n\' "$0 $*" >>{file}\nexec /usr/bin/{name} "$@"\n'
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    for host in ("a", "b"):
        hosts.run(host, "mount", "--bind", str(programs), "/usr/local/bin")
    try:
        yield file
    finally:
        for host in ("a", "b"):
            hosts.run(host, "umount", "/usr/local/bin")


@pytest.fixture
def daemon(hosts: TwoHosts, new_host_daemon: Callable[..., HostDaemon], recorded: Path) -> HostDaemon:
    """A daemon with the secrets in its environment, and profiles that take them from there."""
    made = new_host_daemon(node_silent_s=5)
    (made.root / "config" / "nodes.toml").write_text(registry(hosts, {"spark2": "b"}))
    profiles = (
        profile(name=PAIR, env_from=TAKEN),
        profile(1, PINNED, env_from=TAKEN, node="spark2"),
        profile(1, BROKEN, env_from=TAKEN, node="spark2", command=["/no/such/program"]),
    )
    for each in profiles:
        (made.profiles / f"{each['profile']}.yaml").write_text(json.dumps(each))
    variables = made.root / "variables.json"
    variables.write_text(json.dumps(SECRETS))
    made.start("-c", EXEC, str(variables))
    until_reachable(made)
    return made


def variables_of(hosts: TwoHosts, host: str, container: str) -> dict[str, str]:
    """Variables of a container, as its podman has them."""
    (found,) = json.loads(hosts.run(host, "podman", "inspect", container).stdout)
    return dict(each.split("=", 1) for each in found["Config"]["Env"])


def revealed_in(text: str) -> list[str]:
    """Lines that contain a part of a secret."""
    return [line for line in text.splitlines() if any(mark in line for mark in MARKS)]


def test_variables_of_the_daemon_reach_both_containers_and_no_command_line(
    daemon: HostDaemon, hosts: TwoHosts, recorded: Path
) -> None:
    up(daemon, PAIR)
    there = variables_of(hosts, "b", f"sparkdash-{PAIR}-worker1")
    here = variables_of(hosts, "a", f"sparkdash-{PAIR}")
    daemon.post("/api/stop", {"profile": PAIR}, timeout=60)
    up(daemon, PINNED)
    alone = variables_of(hosts, "b", f"sparkdash-{PINNED}")
    daemon.post("/api/stop", {"profile": PINNED}, timeout=60)
    for found in (here, there, alone):
        assert {name: found.get(name) for name in TAKEN} == {**SECRETS, "PAIR_ABSENT": None}
    argv = recorded.read_text()
    assert re.search(r"/ssh .*-e HF_TOKEN", argv), "the remote start was not recorded"
    assert re.search(r"^/usr/local/bin/podman run .*-e HF_TOKEN", argv, re.MULTILINE)
    assert revealed_in(argv) == []


def test_a_failed_start_there_tells_no_secret_in_its_error_or_log(
    daemon: HostDaemon, hosts: TwoHosts, recorded: Path
) -> None:
    begin(daemon, BROKEN)
    state = daemon.until_state(lambda state: state["engines"].get(BROKEN, {}).get("state") == "failed")
    assert "spark2" in state["engines"][BROKEN]["failure"]["message"]
    assert revealed_in(json.dumps(state, ensure_ascii=False)) == []
    daemon.end()
    texts = [daemon.log.read_text(), recorded.read_text()]
    texts += [(hosts.folder / host / "log" / "sshd").read_text() for host in ("a", "b")]
    texts += [path.read_text("utf-8", "replace") for path in (daemon.root / "state").rglob("*") if path.is_file()]
    assert revealed_in("\n".join(texts)) == []
