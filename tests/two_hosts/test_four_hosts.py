"""Four hosts behind one switch: two models on the halves, one over all, each rank that dies, and a real vLLM of four ranks."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from two_hosts import (
    HERE,
    RANK,
    HostDaemon,
    TwoHosts,
    answer,
    duo,
    open_chat,
    profile,
    registry,
    swapping_daemon,
    until_engine,
    until_gone,
    until_reachable,
    up,
)  # fmt: skip

from sparkdash.catalog import yaml12

pytestmark = [pytest.mark.full, pytest.mark.podman, pytest.mark.timeout(420)]

NAMES = ("a", "b", "d", "e")
"""c is the switch."""
BOXES = ("local", "spark2", "spark3", "spark4")


@pytest.fixture(scope="module")
def four(hosts: TwoHosts) -> Iterator[TwoHosts]:
    with TwoHosts.running("four", "5", NAMES) as made:
        yield made


@pytest.fixture(scope="module")
def spark(four: TwoHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostDaemon]:
    """A daemon on host a that knows the three others; one engine at a time on each host."""
    with swapping_daemon(tmp_path_factory.mktemp("daemon"), four, stop_grace_s=3) as daemon:
        (daemon.root / "config" / "nodes.toml").write_text(registry(four, dict(zip(BOXES[1:], NAMES[1:], strict=True))))
        for name, nodes in (("left", 2), ("right", 2), ("all", 4)):
            daemon.write(name, json.dumps(profile(nodes, name)))
        daemon.write("either", json.dumps(profile(1, "either") | {"nodes": [2, 4], "parallel": {"tp": [2, 4]}}))
        daemon.start()
        until_reachable(daemon, *BOXES[1:])
        yield daemon


def test_two_models_run_on_the_halves_and_one_over_all_takes_the_place_of_both(
    spark: HostDaemon, four: TwoHosts
) -> None:
    up(spark, "left")
    up(spark, "right")
    assert spark.ready_nodes() == {"left": ["local", "spark2"], "right": ["spark3", "spark4"]}
    assert {answer(spark, "left"), answer(spark, "right")} <= {"stop", "length"}
    up(spark, "all")
    assert spark.ready_nodes() == {"all": list(BOXES)}
    held = {host: list(four.containers(host)) for host in NAMES}
    assert held["a"] == ["sparkdash-all"]
    assert all(found == [f"sparkdash-all-worker{rank}"] for rank, found in enumerate(list(held.values())[1:], 1))


@pytest.mark.parametrize(("box", "host"), list(zip(BOXES, NAMES, strict=True)))
def test_an_engine_ends_on_all_boxes_when_one_rank_is_killed_and_the_next_request_brings_it_back(
    spark: HostDaemon, four: TwoHosts, box: str, host: str
) -> None:
    up(spark, "all")
    (container,) = four.containers(host)
    four.run(host, "podman", "kill", "--signal", "KILL", container)
    failure = until_engine(spark, "failed", name="all", limit_s=15)["failure"]
    assert box == "local" or box in failure["message"], failure
    until_gone(four, *NAMES)
    assert spark.sparkdash("status", "--release", "all").returncode == 0  # two failures within ten minutes park it
    assert answer(spark, "all") in ("stop", "length")
    assert spark.ready_nodes() == {"all": list(BOXES)}


@pytest.mark.parametrize(("box", "host"), list(zip(BOXES, NAMES, strict=True)))
def test_a_rank_that_is_paused_is_named_and_the_engine_ends_on_all_boxes(
    spark: HostDaemon, four: TwoHosts, box: str, host: str
) -> None:
    """Neither its container nor its connection ends: the other ranks would wait for ever."""
    up(spark, "all")
    (container,) = four.containers(host)
    four.run(host, "podman", "pause", container)
    failure = until_engine(spark, "failed", name="all", limit_s=25)["failure"]
    assert failure["code"] == "rank_held", failure
    assert ("this box" if box == "local" else box) in failure["message"], failure
    until_gone(four, *NAMES)
    assert answer(spark, "all") in ("stop", "length")


def test_a_cut_between_two_workers_is_told_although_this_box_reaches_both(spark: HostDaemon, four: TwoHosts) -> None:
    up(spark, "all")
    looked_s = 15.0  # a firewall may swallow the probes: only an end that has answered can fall silent
    spark.until_state(lambda state: state["at"] - state["engines"]["all"]["ready_at"] > looked_s)
    route = ("ip", "route", "add", "blackhole", f"{four.address['e']}/32")
    four.run("d", *route)
    try:
        failure = until_engine(spark, "failed", name="all", limit_s=60)["failure"]
    finally:
        four.run("d", "ip", "route", "del", *route[3:])
    assert failure["code"] == "link_down", failure
    assert "spark4" in failure["message"], failure
    until_gone(four, *NAMES)
    assert spark.sparkdash("status", "--release", "all").returncode in (0, 3)


@contextmanager
def unplugged(spark: HostDaemon, four: TwoHosts) -> Iterator[None]:
    """Pull the cable of the last box for the length of the block."""
    four.run("c", "ip", "link", "set", "ve", "down")
    try:
        yield
    finally:
        four.run("c", "ip", "link", "set", "ve", "up")
        spark.post("/api/reload", {})


def test_a_silent_box_ends_what_it_computes_for_and_the_other_half_goes_on(spark: HostDaemon, four: TwoHosts) -> None:
    up(spark, "left")
    up(spark, "right")
    with unplugged(spark, four):
        until_engine(spark, "failed", name="right")
        assert answer(spark, "left") in ("stop", "length")
        assert spark.ready_nodes() == {"left": ["local", "spark2"]}
    until_gone(four, "d", "e")


def alone(spark: HostDaemon) -> None:
    """End what a test before left, and wait for boxes that it cut off."""
    assert spark.sparkdash("stop", "--all").returncode in (0, 3)
    until_reachable(spark, *BOXES[1:])


def test_a_profile_for_two_or_four_boxes_takes_four_and_is_back_on_two_when_one_is_lost(
    spark: HostDaemon, four: TwoHosts
) -> None:
    alone(spark)
    up(spark, "either")
    assert spark.ready_nodes() == {"either": list(BOXES)}
    with unplugged(spark, four):
        until_engine(spark, "failed", name="either")
        assert answer(spark, "either") in ("stop", "length")
        assert spark.ready_nodes() == {"either": ["local", "spark2"]}
    until_gone(four, "d", "e")
    assert answer(spark, "either") in ("stop", "length")
    assert spark.ready_nodes() == {"either": ["local", "spark2"]}, "who serves is not stopped for more boxes"


AGENTS = [f"agent-{number}" for number in range(20)]


def replica_of(spark: HostDaemon, agent: str) -> str:
    """Ask for one more turn of a session; return the engine that answered, by the name that it serves."""
    with open_chat(spark, "many", session=agent) as reply:
        return str(json.load(reply)["model"])


def test_twenty_sessions_keep_to_four_replicas_and_none_is_lost_by_an_update_or_a_kill(
    spark: HostDaemon, four: TwoHosts
) -> None:
    alone(spark)
    engines = {"many": "local", **{f"many@{box}": box for box in BOXES[1:]}}

    def use(build: str) -> set[str]:
        spark.write("many", yaml12.dump(profile(1, "many", replicas=4, env={"BUILD": build})))
        up(spark, "many")
        return set(
            spark.until_state(lambda state: len(fingerprints(state)) == len(engines) and is_settled(state))["engines"]
        )

    def fingerprints(state: dict[str, Any]) -> dict[str, str]:
        return {name: each["fingerprint"] for name, each in state["engines"].items() if each["state"] == "ready"}

    def is_settled(state: dict[str, Any]) -> bool:
        written = {each["name"]: each["fingerprint"] for each in state["profiles"]}
        return all(written[name] == found for name, found in fingerprints(state).items())

    with ThreadPoolExecutor(4) as threads:  # fewer at once than make a conversation leave a busy replica

        def turn() -> dict[str, str]:
            return dict(zip(AGENTS, threads.map(lambda agent: replica_of(spark, agent), AGENTS), strict=True))

        assert use("1") == {*engines}
        assert spark.ready_nodes() == {name: [box] for name, box in engines.items()}
        homes = turn()
        assert all(turn() == homes for _ in range(4))
        assert max(Counter(homes.values()).values()) <= 1.3 * len(AGENTS) / len(engines)

        updated = threads.submit(use, "2")
        while not updated.done():
            assert {*turn().values()} <= {*engines}  # an error would be raised
        updated.result()

        homes = turn()
        (container,) = four.containers("d")
        four.run("d", "podman", "kill", "--signal", "KILL", container)
        after = turn()
        assert "many@spark3" not in after.values()
        assert {agent: home for agent, home in homes.items() if home != "many@spark3"}.items() <= after.items()


def test_a_box_that_is_back_with_another_mtu_is_refused_to_several_boxes_until_it_is_mended(
    spark: HostDaemon, four: TwoHosts
) -> None:
    def spark4(status: str, differs: str | None) -> None:
        def is_so(state: dict[str, Any]) -> bool:
            box = state["nodes"]["spark4"]
            return (box["status"], box["differs"]) == (status, differs)

        spark.until_state(is_so)

    spark4("reachable", None)
    (mtu,) = re.findall(r"mtu (\d+)", four.run("e", "ip", "link", "show", "eth0").stdout)
    with unplugged(spark, four):
        spark4("unreachable", None)
        four.run("e", "ip", "link", "set", "eth0", "mtu", "1300")
    spark4("reachable", f"eth0 has MTU 1300 instead of {mtu}")
    refused = spark.sparkdash("use", "all")
    assert f"spark4 is back with eth0 has MTU 1300 instead of {mtu}" in " ".join(refused.stderr.split())
    four.run("e", "ip", "link", "set", "eth0", "mtu", mtu)
    spark.post("/api/reload", {})
    spark4("reachable", None)
    up(spark, "all")


def test_the_boxes_behind_a_port_are_found_and_added_once_each(spark: HostDaemon, four: TwoHosts) -> None:
    registry = spark.root / "config" / "nodes.toml"
    before = registry.read_text()
    for host in NAMES[1:]:
        four.run(NAMES[0], "sh", "-c", f"exec 3<>/dev/tcp/{four.address[host]}/22 || true", check=False)
    try:
        assert spark.sparkdash("nodes", "remove", "spark4", "--force").returncode == 0
        shown = spark.sparkdash("nodes", "--discover", "--interface", "eth0", "--json")
        found = json.loads(shown.stdout)["found"]
        assert {(each["name"], each["new"]) for each in found} == {
            ("spark2", False), ("spark3", False), ("spark4", True)
        }, shown  # fmt: skip
        added = spark.sparkdash("nodes", "--discover", "--interface", "eth0", "--yes")
        assert (added.returncode, "Added spark4." in added.stderr) == (0, True), added
        again = spark.sparkdash("nodes", "--discover", "--interface", "eth0", "--yes")
        assert "No new box with sshd answers behind eth0." in again.stderr
    finally:
        registry.write_text(before)
        spark.post("/api/reload", {})


RAY = HERE / ".ray"
by_ray = pytest.param(
    "quad/ray",
    marks=[
        pytest.mark.timeout(900),
        pytest.mark.skipif(not (RAY / ".done").exists(), reason="no Ray: run tests/two_hosts/ray.sh"),
    ],
)


def real(four: TwoHosts, name: str, nodes: int, **args: object) -> dict[str, Any]:
    """Make a profile of the real vLLM; arguments that are None are left out."""
    engine = HERE.parent / "real" / ".engine"
    if not (engine / ".done").exists():
        pytest.skip("no real vLLM: run tests/real/setup.sh")
    made = duo(four, engine.resolve(), (RAY if RAY.exists() else engine).resolve())
    flags = {**made["args"], "load-format": "dummy", **{key.replace("_", "-"): value for key, value in args.items()}}
    kept = {key: value for key, value in flags.items() if value is not None}
    return made | {"profile": name, "nodes": nodes, "args": kept}


def serve_and_lose_the_third_box(spark: HostDaemon, four: TwoHosts, name: str, boxes: list[str]) -> None:
    alone(spark)
    done = spark.sparkdash("use", name, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert answer(spark, name) == "length"
    assert spark.ready_nodes() == {name: boxes}
    killed = four.run("d", "pkill", "-KILL", "-f", RANK, check=False)
    assert killed.returncode == 0, (four.run("d", "ps", "-eo", "pid,ppid,stat,args").stdout, spark.state()["engines"])
    failure = until_engine(spark, "failed", name=name)["failure"]
    assert any(line.startswith("[spark3] ") for line in failure["log_tail"]), failure
    until_gone(four, *NAMES)


@pytest.mark.real
@pytest.mark.parametrize("name", ["quad", by_ray])
def test_a_real_vllm_computes_over_four_boxes(spark: HostDaemon, four: TwoHosts, name: str) -> None:
    """Tensor parallel 4 by vLLM's own launch, and by Ray."""
    made = real(four, "quad", 4, tensor_parallel_size=4, hf_overrides='{"num_attention_heads": 4}')
    spark.write("quad", yaml12.dump(made))
    serve_and_lose_the_third_box(spark, four, name, list(BOXES))


@pytest.mark.real
def test_a_real_vllm_computes_as_a_pipeline_over_three_boxes(spark: HostDaemon, four: TwoHosts) -> None:
    """Compiled: with `enforce-eager` its CPU build skips the warm-up in which a later rank makes its buffer, and asserts."""
    layers = {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    compiled = {"mode": 2, "backend": "eager"}
    made = real(
        four, "pipe", 3, tensor_parallel_size=None, enforce_eager=None, hf_overrides=layers, compilation_config=compiled
    )
    spark.write("pipe", yaml12.dump(made | {"parallel": {"pp": 3}}))
    serve_and_lose_the_third_box(spark, four, "pipe", list(BOXES[:3]))
