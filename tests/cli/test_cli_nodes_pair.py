"""`sparkdash doctor --node` and `nodes bench` as commands: what they refuse, print and keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.cli import doctor, node_link
from sparkdash.domain.node import LOCAL, Link, NodeFacts, NodeFinding, Status
from sparkdash.nodes.link_bench import LinkMeasurement, LinkRun, LinkTool

Run = Callable[..., Any]

LINK = Link(interface="enp1s0f1np1", address="192.168.100.1", prefix=24, mtu=9000, hca="rocep1s0f1")
RUN = LinkRun(
    at=1_700_000_000.0,
    node="spark2",
    here=LINK,
    there=LINK.replace(address="192.168.100.2"),
    facts={
        LOCAL: NodeFacts(hostname="spark1", arch="aarch64", home="/h", uid=0),
        "spark2": NodeFacts(hostname="s2", arch="aarch64", home="/h", uid=0),
    },
    measurements=(
        LinkMeasurement(
            tool=LinkTool.PERFTEST, what="ib_write_lat", source=LOCAL, target="spark2", size=2, latency_us=1.62,
            latency_p99_us=2.0,
        ),
        LinkMeasurement(
            tool=LinkTool.PERFTEST, what="ib_write_bw", source=LOCAL, target="spark2", streams=4, size=65536, gbit_s=108.4
        ),
    ),
    missing={LinkTool.IPERF3: "iperf3 is not installed on both boxes: `sudo apt install iperf3`."},
)  # fmt: skip


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own folders of settings and state."""
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "config").mkdir(exist_ok=True)
    return tmp_path / "config"


def add(config: Path, *names: str) -> None:
    """Write a registry with these nodes, none of which answers."""
    tables = (f'[{name}]\nssh = "{name}.invalid"\nhost_key = "ssh-ed25519 AAAA"\n' for name in names)
    (config / "nodes.toml").write_text("\n".join(tables))


@pytest.mark.parametrize("words", [("doctor", "--node", "spark2"), ("nodes", "bench")])
def test_without_nodes_the_command_that_adds_one_is_named(sparkdash: Run, config: Path, words: tuple[str, ...]) -> None:
    done = sparkdash(*words)
    assert done.code == 3
    assert "There is no other node." in done.err
    assert "sparkdash nodes add" in done.err


def test_an_unknown_node_is_refused_with_the_names_there_are(sparkdash: Run, config: Path) -> None:
    add(config, "spark2", "spark3")
    done = sparkdash("doctor", "--node", "spark9")
    assert (done.code, "There are spark2, spark3." in done.err) == (3, True)


def test_one_of_several_nodes_must_be_named_for_a_measurement(sparkdash: Run, config: Path) -> None:
    add(config, "spark2", "spark3")
    done = sparkdash("nodes", "bench")
    assert (done.code, "There are several nodes: spark2, spark3." in done.err) == (3, True)


def test_an_unknown_check_is_refused(sparkdash: Run, config: Path) -> None:
    add(config, "spark2")
    done = sparkdash("doctor", "--node", "spark2", "mtuu")
    assert (done.code, "Did you mean mtu?" in done.err) == (3, True)


@pytest.mark.parametrize(("status", "code"), [(Status.OK, 0), (Status.NOTE, 0), (Status.WARN, 1), (Status.FAIL, 5)])
def test_the_exit_code_is_that_of_the_worst_finding(
    sparkdash: Run, config: Path, monkeypatch: pytest.MonkeyPatch, status: Status, code: int
) -> None:
    add(config, "spark2")

    async def found(*_: Any) -> tuple[NodeFinding, ...]:
        ok = NodeFinding(name="podman", status=Status.OK, evidence="podman 4.9.3.", nodes=(LOCAL,))
        bad = NodeFinding(name="mtu", status=status, evidence="x.", fix="fix it", nodes=(LOCAL, "spark2"))
        return ok, bad

    monkeypatch.setattr("sparkdash.doctor.nodes.examine.examine_registered", found)
    monkeypatch.setattr(doctor.platform, "node", lambda: "spark1")
    done = sparkdash("doctor", "--node", "spark2")
    assert done.code == code
    lines = done.out.splitlines()
    assert lines[0].split() == ["ok", "spark1:", "podman", "podman", "4.9.3."]
    assert "spark2 pair: mtu" in lines[1]
    assert "fix: fix it" in lines[2]
    told = sparkdash("doctor", "--node", "spark2", "--json").json()
    assert [each["nodes"] for each in told["findings"]] == [["local"], ["local", "spark2"]]


def test_a_node_that_cannot_be_reached_is_one_finding(sparkdash: Run, config: Path) -> None:
    add(config, "spark2")
    done = sparkdash("doctor", "--node", "spark2", "podman", "--json")
    assert done.code == 5
    found = [each for each in done.json()["findings"] if each["nodes"] == ["spark2"]]
    assert [(each["name"], each["status"]) for each in found] == [("reachable", "fail")]
    assert found[0]["fix"]


def test_the_page_of_a_measured_link_tells_both_ends_and_each_figure_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    slow = RUN.measurements[0].replace(what="all_reduce_perf, bus bandwidth", latency_p99_us=2058.3)
    node_link.print_run(RUN.replace(measurements=(slow, RUN.measurements[1])))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("spark1 enp1s0f1np1 rocep1s0f1 (192.168.100.1, MTU 9000) and spark2")
    assert max(map(len, lines[2:])) <= 80
    assert "1.6 us (p99 2058.3)" in lines[3]
    assert "108.4" in lines[4]


def test_a_tool_that_did_not_measure_is_a_row_of_dashes_and_the_way_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    node_link.print_run(RUN)
    lines = capsys.readouterr().out.splitlines()
    assert ["iperf3", *["-"] * 6] in [line.split() for line in lines]
    assert "iperf3: iperf3 is not installed on both boxes: `sudo apt install iperf3`." in lines
