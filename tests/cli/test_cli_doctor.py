"""`sparkdash doctor` as its owner meets it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon

from sparkdash.cli.doctor import finding_lines
from sparkdash.doctor import CHECKS
from sparkdash.domain.node import Finding, Status

Run = Callable[..., Any]


def test_the_list_names_every_check_in_80_columns(sparkdash: Run) -> None:
    done = sparkdash("doctor", "--list")
    assert done.code == 0
    assert {line.split()[0] for line in done.out.splitlines()[1:] if not line.startswith(" ")} == set(CHECKS)
    assert [line for line in done.out.splitlines() if len(line) > 80] == []
    assert [each["name"] for each in sparkdash("doctor", "--list", "--json").json()] == list(CHECKS)


def test_only_the_named_checks_run(sparkdash: Run, nobody: None) -> None:
    told = sparkdash("doctor", "settings", "system", "--json").json()
    assert [one["name"] for one in told["findings"]] == ["system", "settings"]
    assert sum(told["counts"].values()) == 2
    assert set(told["findings"][0]) == {"name", "status", "evidence", "fix"}


@pytest.mark.parametrize(("check", "told"), [("swapp", "Did you mean swap?"), ("memlock", "There is no check")])
def test_an_unknown_check_is_told_with_the_nearest(sparkdash: Run, check: str, told: str) -> None:
    """Checks of nodes are unknown where no node is registered."""
    done = sparkdash("doctor", check)
    assert (done.code, told in done.err) == (3, True)


def test_settings_that_are_not_valid_are_a_finding(sparkdash: Run, own_folders: Any) -> None:
    (own_folders / "config" / "config.toml").write_text("prot = 1\n")
    done = sparkdash("doctor", "settings", "daemon")
    assert done.code == 5
    assert re.search(r"^fail +settings", done.out, re.MULTILINE)
    assert "prot" in done.out


def test_the_daemon_is_asked(sparkdash: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    done = sparkdash("doctor", "daemon")
    assert (done.code, done.out.split()[:2]) == (0, ["ok", "daemon"])
    monkeypatch.setenv("SPARKDASH_RUNTIME", "docker")
    done = sparkdash("doctor", "daemon")
    assert (done.code, done.out.split()[:2]) == (1, ["warn", "daemon"])


def test_no_daemon_is_no_fault(sparkdash: Run, nobody: None) -> None:
    done = sparkdash("doctor", "daemon")
    assert done.code == 0
    assert "No sparkdash daemon answers" in done.out


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_evidence_is_folded_and_a_cure_stays_one_line(columns: int) -> None:
    fix = "echo " + "word " * 40
    found = [Finding(name="engine-ports", status=Status.FAIL, evidence="a word " * 60, fix=fix.strip())]
    shown = list(finding_lines(found, columns=columns))
    assert [line for line in shown if len(line) > columns] == [f"         fix: {fix.strip()}"]
    assert shown[-1] == "1 fail"


@pytest.mark.parametrize(("script", "told"), [
    pytest.param(None, "podman is not installed.", id="missing"),
    pytest.param("echo 'Error: cannot setup namespace' >&2; exit 125", "cannot setup namespace", id="125"),
    pytest.param("exit 127", "fails: status 127", id="127"),
    pytest.param("echo '{\"host\": '", "fails: status 0", id="half an answer"),
    pytest.param("echo '[]'", "fails: status 0", id="another shape"),
    pytest.param("kill -9 $$", "fails: status -9", id="killed"),
])  # fmt: skip
def test_a_podman_that_misbehaves_is_a_finding(
    sparkdash: Run, stand_in: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, told: str
) -> None:
    """A real program on PATH, in every way that podman has been seen to fail; the checks that need it say so."""
    if script is not None:
        stand_in("podman", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = sparkdash("doctor", "podman", "images", "--json")
    assert found.code == 5
    podman, images = found.json()["findings"]
    assert (podman["status"], images["status"]) == ("fail", "unknown")
    assert told in podman["evidence"]
    assert podman["fix"]


def register_silent_node(folder: Path) -> None:
    """A node whose address the name service does not know."""
    (folder / "config" / "nodes.toml").write_text('[spark2]\nssh = "spark2.invalid"\nhost_key = "ssh-ed25519 AAAA"\n')


def test_a_registered_node_that_is_away_is_one_finding_of_the_doctor_with_its_fix(
    sparkdash: Run, nobody: None, own_folders: Path
) -> None:
    register_silent_node(own_folders)
    told = sparkdash("doctor", "system", "mtu", "podman", "--json").json()["findings"]
    of_nodes = [(one["name"], one["status"], one["nodes"]) for one in told if "nodes" in one]
    assert of_nodes == [("reachable", "fail", ["spark2"])]
    assert {one["name"] for one in told if "nodes" not in one} == {"system", "podman"}
    page = sparkdash("doctor", "system", "mtu").out
    assert "spark2: reachable" in page
    assert "give the IP address" in " ".join(page.split())


def test_checks_of_nodes_are_listed_where_a_node_is_registered(sparkdash: Run, own_folders: Path) -> None:
    assert "memlock" not in sparkdash("doctor", "--list").out
    register_silent_node(own_folders)
    assert "memlock" in sparkdash("doctor", "--list").out
    assert sparkdash("doctor", "--list", "--json").json()[0]["name"] == next(iter(CHECKS))


def test_a_registry_of_nodes_that_cannot_be_read_is_a_finding(sparkdash: Run, nobody: None, own_folders: Path) -> None:
    (own_folders / "config" / "nodes.toml").write_text("spark2 = 1\n")
    told = sparkdash("doctor", "--json").json()["findings"]
    (found,) = [one for one in told if one["name"] == "nodes"]
    assert (found["status"], "spark2 is not a table" in found["evidence"]) == ("fail", True)
