"""Whose a process is: by pid, control group, family and user."""

from __future__ import annotations

import pytest

from sparkdash.domain.memory.account import Holder
from sparkdash.host.memory_account.owners import Container, KnownOwners, Owner, container_id, owners
from sparkdash.host.memory_account.process_table import ProcessMemory
from sparkdash.host.memory_account.remedies import remedy, removal

ID = "0123456789abcdef" * 4
SHORT = ID[:12]


def process(pid: int, cgroups: str = "0::/", parent: int = 1, name: str = "python3", uid: int = 1000) -> ProcessMemory:
    """One process."""
    return ProcessMemory(pid, parent, name, uid, 1, 0, cgroups=cgroups)


def owner(cgroups: str, known: KnownOwners | None = None, name: str = "python3") -> Owner:
    """Whose a single process with that control group is."""
    return owners([process(7, cgroups, name=name)], known or KnownOwners(users={1000: "alice"}, asks=1000))[7]


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"0::/machine.slice/libpod-{ID}.scope/container", "podman"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", "podman"),
        (f"0::/libpod_parent/libpod-{ID}", "podman"),
        (f"0::/system.slice/docker-{ID}.scope", "docker"),
        (f"12:memory:/docker/{ID}\n0::/", "docker"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", "kubernetes"),
        (f"0::/kubepods/burstable/pod1/{ID}", "kubernetes"),
        (f"0::/system.slice/nerdctl-{ID}.scope", "nerdctl"),
        (f"0::/default/{ID}", "containerd"),
    ],
)
def test_a_container_by_its_control_group(path: str, runtime: str) -> None:
    """Of every runtime; a name that nobody tells is its short id."""
    assert container_id(path) == (runtime, ID)
    assert owner(path) == Owner(Holder.CONTAINER, SHORT, runtime=runtime)


def test_a_container_by_the_name_that_its_runtime_tells() -> None:
    """And ours by its profile."""
    path = f"0::/system.slice/docker-{ID}.scope"
    theirs = KnownOwners(containers={ID: Container("open-webui", "docker", "webui:1")})
    assert owner(path, theirs) == Owner(Holder.CONTAINER, "open-webui", runtime="docker", image="webui:1")
    ours = KnownOwners(containers={ID: Container("sparkdash-qwen", "docker", "vllm", profile="qwen")})
    assert owner(path, ours) == Owner(Holder.ENGINE, "qwen")


def test_a_container_without_a_group_of_its_own_by_its_first_process() -> None:
    """Where groups are switched off all descendants of its first process are its."""
    known = KnownOwners(mains={10: Container("box", "podman", "busybox")})
    found = owners([process(10), process(11, parent=10), process(12, parent=11), process(13)], known)
    assert {pid for pid, one in found.items() if one.name == "box"} == {10, 11, 12}


def test_two_containers_of_one_name_of_two_runtimes_stay_two() -> None:
    """Their commands differ."""
    other = "f" * 64
    known = KnownOwners(containers={ID: Container("web", "podman"), other: Container("web", "docker")})
    found = owners([process(1, f"0::/libpod-{ID}.scope"), process(2, f"0::/docker-{other}.scope")], known)
    assert remedy(found[1], 1) == "podman stop web"
    assert remedy(found[2], 2) == "docker stop web"


def test_an_engine_goes_before_its_container_and_its_parents() -> None:
    """A worker that was forked after the pids were listed is found by its parent."""
    known = KnownOwners(engines={10: "qwen"}, ours=frozenset({5}))
    found = owners([process(5), process(10, parent=5), process(11, parent=10), process(6, parent=5)], known)
    assert [found[pid].name for pid in (5, 10, 11, 6)] == ["sparkdash", "qwen", "qwen", "sparkdash"]


def test_a_dashboard_and_what_it_starts_is_ours() -> None:
    """By its name, whoever's daemon it shows."""
    found = owners([process(5, name="sparkdash"), process(6, parent=5)], KnownOwners())
    assert {one.kind for one in found.values()} == {Holder.SPARKDASH}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("0::/system.slice/gdm.service", "gdm.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-2345.scope", "firefox"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-flatpak-org.mozilla.firefox-9.scope", "org.mozilla.firefox"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-text\\x2deditor-99.scope", "text-editor"),
        ("0::/user.slice/user-1000.slice/user@1000.service/session.slice/org.gnome.Shell@wayland.service", "org.gnome.Shell@wayland.service"),
        ("4:memory:/x\n1:name=systemd:/system.slice/cron.service", "cron.service"),
    ],
)  # fmt: skip
def test_a_service_or_application_by_its_unit(path: str, name: str) -> None:
    """As the user knows it."""
    assert (owner(path).kind, owner(path).name) == (Holder.UNIT, name)


@pytest.mark.parametrize(
    "path",
    ["0::/", "", "0::/init.scope", "0::/user.slice/user-1000.slice/session-3.scope",
     "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope", "garbage", "0::"],
)  # fmt: skip
def test_a_program_of_a_login_by_its_own_name_and_user(path: str) -> None:
    """A session's unit says nothing of what runs in it."""
    assert owner(path, name="llama-server") == Owner(Holder.PROGRAM, "llama-server", "alice")


def test_the_end_of_a_service_that_cuts_the_owner_off_is_not_recommended() -> None:
    """Neither ssh nor the runtime, whose end would take other rows with it; nor another user's application."""
    for unit in ("ssh.service", "systemd-logind.service", "docker.service", "NetworkManager.service"):
        assert remedy(owner(f"0::/system.slice/{unit}"), 7) is None
    assert remedy(owner("0::/system.slice/gdm.service"), 7) == "sudo systemctl stop gdm.service"
    app = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-2.scope"
    assert remedy(owner(app), 7) == "systemctl --user stop app-firefox-2.scope"
    assert remedy(owner(app, KnownOwners(asks=1001)), 7) is None


def test_a_name_that_steers_a_shell_or_a_terminal_gets_no_command() -> None:
    """It is text of somebody else's."""
    for name in ("x; reboot", "$(id)", "a b", "\x1b[2J", "--all", "a\n"):
        assert remedy(Owner(Holder.CONTAINER, name, runtime="docker"), 7) is None
        assert removal((name,), own=True) is None


def test_processes_that_are_each_others_parents_do_not_hang_the_look() -> None:
    """A pid may be given out anew between two reads."""
    assert len(owners([process(2, parent=3), process(3, parent=2)], KnownOwners())) == 2
