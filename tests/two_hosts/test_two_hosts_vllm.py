"""A real vLLM with tensor parallel 2 over two hosts, by its own launch and over Ray, as its owner would use it.

The tests of this module share one daemon and run in their order: each begins where the one before ended. Both ranks
compute on this machine's CPU and talk over the hosts' network.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_sshd import until
from two_hosts import HERE, RANK, HostDaemon, TwoHosts, duo, open_chat, swapping_daemon, until_gone
from two_hosts import profile as small_profile

from sparkdash.catalog import yaml12

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.podman, pytest.mark.timeout(420)]

LOAD_S = 300
"""Seconds that a pair may take on a busy machine; 40 s were seen on a quiet one."""


@pytest.fixture(scope="module")
def engine() -> Path:
    """Folder of the real vLLM and its tiny model."""
    link = HERE.parent / "real" / ".engine"
    if not (link / ".done").exists():
        pytest.skip("no real vLLM: run tests/real/setup.sh")
    return link.resolve()


RAY = HERE / ".ray"
needs_ray = pytest.mark.skipif(not (RAY / ".done").exists(), reason="no Ray: run tests/two_hosts/ray.sh")


@pytest.fixture(scope="module")
def spark(hosts: TwoHosts, engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostDaemon]:
    """A daemon on host a that knows host b, the pair, and two small engines; one engine at a time on each host."""
    with swapping_daemon(tmp_path_factory.mktemp("daemon"), hosts) as daemon:
        daemon.write("duo", yaml12.dump(duo(hosts, engine, (RAY if RAY.exists() else engine).resolve())))
        for name in ("solo-one", "solo-two"):
            daemon.write(name, yaml12.dump(small_profile(1, name)))
        daemon.start()
        daemon.add_node()
        yield daemon


def ask(spark: HostDaemon, model: str, **more: Any) -> Any:
    """Open a chat of exact length, which may wait for a load."""
    return open_chat(spark, model, timeout=LOAD_S, ignore_eos=True, **more)


def generated(spark: HostDaemon, model: str) -> int:
    """Tokens of a whole answer."""
    with ask(spark, model, max_tokens=8) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


def ranks(hosts: TwoHosts, host: str) -> int:
    """Number of processes on a host that compute for a pair."""
    return len(hosts.run(host, "pgrep", "-f", RANK, check=False).stdout.split())


def test_use_brings_a_pair_up_over_both_hosts_right_after_the_second_is_added(
    spark: HostDaemon, hosts: TwoHosts
) -> None:
    done = spark.sparkdash("use", "duo", timeout=LOAD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert generated(spark, "duo") == 8
    assert hosts.containers("a").keys() == {"sparkdash-duo"}
    assert hosts.containers("b").keys() == {"sparkdash-duo-worker1"}
    until(lambda: min(ranks(hosts, "a"), ranks(hosts, "b")) > 0, 40)  # Ray names them in its own time
    assert spark.ready_nodes() == {"duo": ["local", "spark-b"]}


def test_a_daemon_that_is_killed_finds_the_pair_again_and_it_answers(spark: HostDaemon, hosts: TwoHosts) -> None:
    before = hosts.run("b", "pgrep", "-f", RANK).stdout
    spark.kill()
    spark.start()
    spark.until_state(lambda state: state["engines"].get("duo", {}).get("state") == "ready")
    assert generated(spark, "duo") == 8
    assert hosts.run("b", "pgrep", "-f", RANK).stdout == before


def test_a_profile_for_one_host_takes_the_place_of_the_pair_and_another_comes_beside_it_on_the_other_host(
    spark: HostDaemon, hosts: TwoHosts
) -> None:
    with ask(spark, "solo-one", max_tokens=2) as answer:
        assert json.load(answer)["choices"]
    assert (hosts.containers("a").keys(), hosts.containers("b")) == ({"sparkdash-solo-one"}, {})
    assert (ranks(hosts, "a"), ranks(hosts, "b")) == (0, 0)
    with ask(spark, "solo-two", max_tokens=2) as answer:
        assert json.load(answer)["choices"]
    assert spark.ready_nodes() == {"solo-one": ["local"], "solo-two": ["spark-b"]}
    assert hosts.containers("b").keys() == {"sparkdash-solo-two"}


@needs_ray
def test_the_same_pair_comes_up_over_ray_in_the_place_of_both(spark: HostDaemon, hosts: TwoHosts) -> None:
    done = spark.sparkdash("use", "duo/ray", timeout=LOAD_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert generated(spark, "duo/ray") == 8
    assert spark.ready_nodes() == {"duo/ray": ["local", "spark-b"]}
    assert (len(hosts.containers("a")), len(hosts.containers("b"))) == (1, 1)
    until(lambda: min(ranks(hosts, "a"), ranks(hosts, "b")) > 0, 40)  # Ray names them in its own time


@needs_ray
def test_a_rank_that_is_killed_in_a_stream_ends_it_with_the_reason_and_nothing_is_left_on_either_host(
    spark: HostDaemon, hosts: TwoHosts
) -> None:
    """The last words of its host are kept."""
    with ask(spark, "duo/ray", max_tokens=3000, stream=True) as stream:
        assert stream.readline().startswith(b"data: {")
        hosts.run("b", "pkill", "-KILL", "-f", RANK)
        rest = stream.read().decode()
    last = [line for line in rest.splitlines() if line][-2:]
    error = json.loads(last[0].removeprefix("data: "))["error"]
    assert error["src"] == "sparkdash", error
    assert any(words in error["message"] for words in ("ended without a word", "on spark-b")), error
    assert last[1] == "data: [DONE]"
    state = spark.until_state(lambda state: state["engines"]["duo/ray"]["state"] == "failed")
    failure = state["engines"]["duo/ray"]["failure"]
    assert any(line.startswith("[spark-b] ") for line in failure["log_tail"]), failure
    until_gone(hosts, "a", "b")
    assert (ranks(hosts, "a"), ranks(hosts, "b")) == (0, 0)


READ = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"
SESSIONS = 8


def prefix_counters(spark: HostDaemon, hosts: TwoHosts, names: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Prompt tokens that each engine found in its prefix cache, and all, by its own counters."""

    def total(page: str, what: str) -> float:
        lines = (line for line in page.splitlines() if line.startswith(f"vllm:prefix_cache_{what}_total"))
        return sum(float(line.split()[-1]) for line in lines)

    engines = spark.state()["engines"]
    pages = {
        name: hosts.run("a", sys.executable, "-c", READ, f"{engines[name]['url']}/metrics").stdout for name in names
    }
    return {name: (total(page, "hits"), total(page, "queries")) for name, page in pages.items()}


def converse(spark: HostDaemon, model: str, talks: list[list[dict[str, str]]], turns: int) -> None:
    """Go on with all conversations for some turns; few requests at once, so that none leaves a busy engine."""

    def turn(talk: list[dict[str, str]]) -> None:
        talk.append({"role": "user", "content": f"{talk[0]['content']} {len(talk)} " * 8})
        with ask(spark, model, max_tokens=4, messages=talk) as answer:
            talk.append({"role": "assistant", "content": json.load(answer)["choices"][0]["message"]["content"] or "-"})

    with ThreadPoolExecutor(3) as threads:
        for _ in range(turns):
            list(threads.map(turn, talks))


def test_conversations_find_their_prefixes_on_two_replicas_as_on_one_also_after_a_restart(
    spark: HostDaemon, hosts: TwoHosts, engine: Path
) -> None:
    made = duo(hosts, engine, engine)
    args = {key: value for key, value in made["args"].items() if key != "tensor-parallel-size"}
    del made["variants"]
    spark.write("twin", yaml12.dump(made | {"profile": "twin", "nodes": 1, "replicas": 2, "args": args}))
    both, rates = ("twin", "twin@spark-b"), {}
    for name in both:
        done = spark.sparkdash("use", name, timeout=LOAD_S)
        assert done.returncode == 0, done.stdout + done.stderr
    for model, asked in (("twin@spark-b", both[1:]), ("twin", both)):
        talks = [[{"role": "system", "content": f"{len(asked)} engines {number}"}] for number in range(SESSIONS)]
        before = prefix_counters(spark, hosts, both)
        converse(spark, model, talks, 2)
        if model == "twin":
            spark.end(engines=False)
            spark.start()
            spark.until_state(lambda state: {*both} <= {*state["engines"]})
        converse(spark, model, talks, 2)
        after = prefix_counters(spark, hosts, both)
        hits, queries = ([after[name][of] - before[name][of] for name in asked] for of in (0, 1))
        rates[model] = sum(hits) / sum(queries)
        assert max(queries) <= 1.3 * sum(queries) / len(asked), queries
    assert rates["twin"] >= 0.9 * rates["twin@spark-b"] > 0, rates
