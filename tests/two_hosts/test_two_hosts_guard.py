"""Figures and memory guard of the other host, over real ssh, with engines in real containers there."""

import json
from collections.abc import Callable

import local_sshd
import pytest
from two_hosts import NAME, WORKER, HostDaemon, TwoHosts, plug_in, profile, up

pytestmark = [pytest.mark.full, pytest.mark.podman]

KB = 1 << 20


@pytest.fixture(autouse=True)
def memory_of_b(hosts: TwoHosts) -> Callable[[float], None]:
    """Lays a box of 121 GiB over /proc/meminfo of host b; sets what of it is available, in GiB."""
    file = hosts.folder / "b" / "meminfo"

    def write(available_gib: float) -> None:
        figures = {"MemTotal:": 121, "MemFree:": 1, "MemAvailable:": available_gib}
        text = "".join(f"{name:<15}{int(gib * KB):>12} kB\n" for name, gib in figures.items())
        with file.open("r+" if file.exists() else "w") as there:
            there.write(text)

    fresh = not file.exists()
    write(60)
    if fresh:
        hosts.run("b", "mount", "--bind", str(file), "/proc/meminfo")
    return write


def guards(hosts: TwoHosts) -> list[str]:
    """Process ids of the guards on host b."""
    return hosts.run("b", "pgrep", "-f", "^python3 .*# sparkdash-guard", check=False).stdout.split()


WORDS_OF_B = "head -3 /proc/meminfo; podman ps -a; ps -eo pid,ppid,stat,args; tail -n +1 /run/sparkdash-guard-*/*.json"


def until(hosts: TwoHosts, holds: Callable[[], object]) -> None:
    """Ask again and again; at the limit, tell what host b looks like."""
    local_sshd.until(holds, 40, lambda: hosts.run("b", "sh", "-c", WORDS_OF_B, check=False).stdout)


def test_the_guard_of_the_other_host_kills_a_worker_and_its_engine_fails_with_the_reason(
    daemon: HostDaemon, hosts: TwoHosts, memory_of_b: Callable[[float], None]
) -> None:
    up(daemon)
    daemon.until_state(lambda state: state["nodes"]["spark2"]["guarded"])
    memory_of_b(1.2)
    until(hosts, lambda: hosts.containers("b").get(WORKER, "gone").startswith(("Exited", "exited", "gone")))
    memory_of_b(60)
    state = daemon.until_state(lambda state: state["engines"].get(NAME, {}).get("state") == "failed")
    failure = state["engines"][NAME]["failure"]
    assert "spark2's memory guard killed pair: 1.2 GiB were available" in failure["message"], failure
    daemon.until_state(lambda state: any("spark2's memory guard" in each["text"] for each in state["notices"]))


def test_the_guard_acts_while_the_daemon_is_dead_and_the_next_daemon_tells_it(
    daemon: HostDaemon, hosts: TwoHosts, memory_of_b: Callable[[float], None]
) -> None:
    (daemon.profiles / "there.yaml").write_text(json.dumps(profile(1, "there", node="spark2")))
    daemon.post("/api/reload", {})
    up(daemon, "there")
    daemon.until_state(lambda state: state["nodes"]["spark2"]["guarded"])
    daemon.kill()
    before = set(guards(hosts))  # with those of earlier daemons, until their leases end
    assert before
    memory_of_b(1.2)
    until(hosts, lambda: hosts.containers("b").get("sparkdash-there", "").lower().startswith("exited"))
    memory_of_b(60)
    daemon.start()
    daemon.until_state(lambda state: any("spark2's memory guard killed there" in n["text"] for n in state["notices"]))
    daemon.until_state(lambda state: state["nodes"]["spark2"]["guarded"])
    assert set(guards(hosts)) <= before


def test_the_guard_acts_while_the_link_is_cut(
    daemon: HostDaemon, hosts: TwoHosts, memory_of_b: Callable[[float], None]
) -> None:
    up(daemon)
    daemon.until_state(lambda state: state["nodes"]["spark2"]["guarded"])
    hosts.link(up=False)
    memory_of_b(1.2)
    until(hosts, lambda: hosts.containers("b").get(WORKER, "gone").lower().startswith(("exited", "gone")))
    memory_of_b(60)
    plug_in(hosts, daemon)
    daemon.until_state(lambda state: any("spark2's memory guard killed" in each["text"] for each in state["notices"]))
