"""Launches over several nodes: each rank's command, variables, devices and labels."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import LABEL_NODES, ContainerSpec, with_marks
from sparkdash.domain.node import Link
from sparkdash.domain.profile import Profile
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter
from sparkdash.engines.vllm import ray
from sparkdash.errors import ProfileError
from sparkdash.host.podman import argv
from tests.engines.conftest import HEAD, WORKER

Make = Callable[..., Profile]

BOTH: dict[str, Any] = {"nodes": 2, "args": {"tensor-parallel-size": 2}}


def _built(profile: Profile, launch: LaunchContext) -> tuple[ContainerSpec, ContainerSpec]:
    head = adapter(profile.engine).container(profile, launch)
    (worker,) = head.workers
    return head, worker


def test_an_executor_that_the_profile_names_is_not_named_twice(profile: Make, pair: LaunchContext) -> None:
    """`mp` in the profile is vLLM's own launch as well."""
    args = {"tensor-parallel-size": 2, "distributed_executor_backend": "mp", "api-server-count": 4}
    head, worker = _built(profile(nodes=2, args=args), pair)
    assert [word for word in head.argv if word.startswith("--distributed")] == ["--distributed_executor_backend"]
    assert "--api-server-count" in head.argv
    assert "--api-server-count" not in worker.argv


def test_a_gid_index_that_nobody_knows_is_not_guessed(profile: Make, pair: LaunchContext) -> None:
    link = Link(interface="enp1s0f1np1", hca="rocep1s0f1")
    head, _ = _built(profile(**BOTH), replace(pair, nodes=(HEAD.replace(link=link), WORKER)))
    assert "NCCL_IB_GID_INDEX" not in head.env


def test_rdma_devices_are_handed_in_only_where_the_link_has_them(profile: Make, pair: LaunchContext) -> None:
    """A link without RDMA also tells NCCL to leave other networks' devices alone."""
    plain = WORKER.replace(link=Link(interface="eth0"))
    head, worker = _built(profile(**BOTH), replace(pair, nodes=(HEAD, plain)))
    assert ("/dev/infiniband" in head.devices, head.ulimits) == (True, ("memlock=-1:-1",))
    assert ("/dev/infiniband" in worker.devices, worker.ulimits) == (False, ())
    assert worker.env["NCCL_IB_DISABLE"] == "1"
    line = argv.run("podman", head)
    assert line[line.index("--ulimit") + 1] == "memlock=-1:-1"
    assert line[line.index("/dev/infiniband") - 1] == "--device"
    assert "--ulimit" not in argv.run("podman", worker)


def test_the_profiles_variables_override_what_was_found_on_a_node(profile: Make, pair: LaunchContext) -> None:
    own = {"env": {"NCCL_IB_HCA": "mine"}, "env_by_node": {"spark2": {"NCCL_IB_HCA": "its", "NCCL_DEBUG": "INFO"}}}
    head, worker = _built(profile(**BOTH, **own), pair)
    assert (head.env["NCCL_IB_HCA"], worker.env["NCCL_IB_HCA"]) == ("mine", "its")
    assert "NCCL_DEBUG" not in head.env
    assert worker.env["NCCL_DEBUG"] == "INFO"


def test_a_profile_for_one_node_runs_where_the_launch_says(profile: Make, launch: LaunchContext) -> None:
    """The folders are that node's; on this box alone no label tells of nodes."""
    there = adapter(profile().engine).container(
        profile(models={"target": {"hf": "a/b"}}), replace(launch, nodes=(WORKER,))
    )
    assert (there.node, there.labels[LABEL_NODES], there.workers) == ("spark2", "spark2", ())
    assert [mount.source for mount in there.mounts] == [
        WORKER.hf_home,
        f"{WORKER.cache_dir}/engines/localhost-tiny@tag@a-b",
    ]
    assert not {"NCCL_SOCKET_IFNAME", "VLLM_HOST_IP"} & set(there.env)
    assert "/dev/infiniband" not in there.devices
    here = adapter(profile().engine).container(profile(), replace(launch, nodes=(HEAD,)))
    assert here == adapter(profile().engine).container(profile(), launch)
    assert LABEL_NODES not in here.labels


def test_words_of_env_have_each_nodes_own_value(profile: Make, pair: LaunchContext) -> None:
    """A word that nothing is known of is refused; what is no word stays, such as JSON."""
    env = {"B12X_ROCE_HCA": "{hca}", "WHERE": "{rank} of {head}", "GID": "{gid_index}", "OTHER": '{"a": {}}'}
    head, worker = _built(profile(**BOTH, env=env), pair)
    names = ("B12X_ROCE_HCA", "B12X_ROCE_PEER_HCA_MAP", "WHERE", "GID", "OTHER")
    assert [head.env[name] for name in names] == ["rocep1s0f1", "1=0", "0 of 192.168.100.10", "3", '{"a": {}}']
    assert [worker.env[name] for name in names] == ["roceP2p1s0f1", "0=0", "1 of 192.168.100.10", "5", '{"a": {}}']
    plain = replace(pair, nodes=(HEAD, WORKER.replace(link=Link(interface="eth0"))))
    with pytest.raises(ProfileError, match=r"names \{hca\} in `env`, which is not known for spark2"):
        _built(profile(**BOTH, env=env), plain)


def test_ray_is_refused_on_a_ring_of_four_whose_order_it_does_not_keep(profile: Make, launch: LaunchContext) -> None:
    names = ("local", "spark2", "spark3", "spark4")
    nodes = tuple(HEAD.replace(name=name, cables={names[place - 1]: ()}) for place, name in enumerate(names))
    made = profile(nodes=4, args={"tensor-parallel-size": 4, "distributed-executor-backend": "ray"})
    with pytest.raises(ProfileError, match="order of the cables"):
        adapter(made.engine).container(made, replace(launch, nodes=nodes))


@pytest.mark.parametrize(("fields", "code", "words"), [
    ({"nodes": 9, "args": {"tensor-parallel-size": 9}}, "nodes_unsupported", "on 8 at most"),
    ({"nodes": 2}, "ranks_mismatch", "splits its model in 1"),
    ({"nodes": 2, "args": {"tensor-parallel-size": 2, "node_rank": 0}}, "reserved_argument", "node_rank"),
    ({"nodes": 2, "args": {"tensor-parallel-size": 2, "distributed-executor-backend": "uni"}}, "nodes_unsupported",
     "'uni'"),
    ({"nodes": 2, "engine": "trtllm", "args": {"tp_size": 2}}, "nodes_unsupported", "mpirun"),
    ({"nodes": 2, "engine": "llamacpp", "models": {"target": {"path": "/m.gguf"}}}, "nodes_unsupported", "on one"),
])  # fmt: skip
def test_what_cannot_start_on_two_nodes_says_why(
    fields: dict[str, object], code: str, words: str, profile: Make, pair: LaunchContext
) -> None:
    made = profile(**fields)
    with pytest.raises(ProfileError, match=words) as refused:
        adapter(made.engine).container(made, pair)
    assert refused.value.code == code


def test_two_ranks_of_tensorfold_differ_in_their_rank_alone_and_meet_at_the_serving_box(
    profile: Make, pair: LaunchContext
) -> None:
    head, worker = _built(profile(engine="tensorfold", nodes=2, args={"tp": 2}), pair)
    assert head.argv[-6:] == ("--master", HEAD.address, "--master-port", "29600", "--rank", "0")
    assert worker.argv == (*head.argv[:-1], "1")


def test_one_known_node_is_too_few_and_the_error_says_how_to_add_one(profile: Make, launch: LaunchContext) -> None:
    made = profile(**BOTH)
    with pytest.raises(ProfileError, match="needs 2 nodes, and sparkdash knows 1") as refused:
        adapter(made.engine).container(made, launch)
    assert refused.value.code == "needs_two_nodes"
    assert "sparkdash nodes add" in (refused.value.hint or "")


def test_every_container_of_an_engine_is_marked_with_its_own_name(profile: Make, pair: LaunchContext) -> None:
    """So that processes that outlive one are found on its node."""
    head = with_marks(adapter(profile().engine).container(profile(**BOTH), pair), "cafe")
    assert head.env["SPARKDASH_ENGINE"] == "cafe/sparkdash-tiny"
    assert head.workers[0].env["SPARKDASH_ENGINE"] == f"cafe/{head.workers[0].name}"


def test_only_what_is_new_changes_a_fingerprint(profile: Make) -> None:
    """An engine that ran before there were nodes is still the same."""
    assert profile().fingerprint == "e42a67811d52"
    changed = [{"node": "spark2"}, {"env_by_node": {"spark2": {"A": "1"}}}, {"ray_command": ["x"]}, {"nodes": 2}]
    assert len({profile(**fields).fingerprint for fields in [{}, *changed]}) == 5


def test_ray_has_its_usual_port_where_none_was_chosen(profile: Make, pair: LaunchContext) -> None:
    args = {"tensor-parallel-size": 2, "distributed-executor-backend": "ray"}
    _, worker = _built(profile(nodes=2, args=args), replace(pair, master_port=0))
    assert "192.168.100.10:6379" in worker.argv[2]


STATUS = """\
#!/bin/sh
echo "$@" >>$LOG
case $1 in
start) [ -e $LOG.refused ] || { : >$LOG.refused; exit ${FIRST:-0}; };;
status) printf 'Node status\\nActive:\\n'; for i in $(seq $JOINED); do echo " 1 node_$i"; done
  printf 'Pending:\\n (no pending nodes)\\nRecent failures:\\n 1 node_9\\n';;
esac
"""


def _run(command: tuple[str, ...], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a container's command with a stand-in for `ray`, as this test's user."""
    program = folder / "ray"
    program.write_text(STATUS)
    program.chmod(0o755)
    return subprocess.run(
        command,
        env={"PATH": f"{folder}:/usr/bin:/bin", "LOG": str(folder / "log"), **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_head_serves_once_all_nodes_have_joined_ray(tmp_path: Path) -> None:
    """The server is told the cluster's address, and is the shell's own process; a dead node does not count."""
    command = ray.head_command(["sh", "-c", "echo serving at $RAY_ADDRESS as $0"], (HEAD, WORKER), 0, ["ray"])
    done = _run(tuple(command), tmp_path, JOINED="2")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-2:] == [
        "sparkdash: 2 of 2 nodes have joined Ray at 192.168.100.10:6379",
        "serving at 192.168.100.10:6379 as sh",
    ]


def test_a_node_that_does_not_join_ray_is_named_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line says what is missing, and the head ends."""
    monkeypatch.setattr(ray, "JOIN_S", 1)
    done = _run(tuple(ray.head_command(["echo", "served"], (HEAD, WORKER), 0, ["ray"])), tmp_path, JOINED="1")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "sparkdash: only 1 of 2 nodes joined Ray at 192.168.100.10:6379 within 1 s. Missing: spark2 (192.168.100.11)."
    )


def test_a_ray_that_does_not_start_ends_the_head(tmp_path: Path) -> None:
    done = _run(tuple(ray.head_command(["true"], (HEAD, WORKER), 0, ["ray"])), tmp_path, FIRST="3", JOINED="2")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "sparkdash: Ray did not start on this node.")


@pytest.mark.parametrize("program", [["ray2"], ["/opt/none/python", "-m", "ray.scripts.scripts"]])
def test_an_image_without_ray_says_so(program: list[str], tmp_path: Path) -> None:
    """Both the head and the worker end at once."""
    for command in (
        ray.head_command(["true"], (HEAD, WORKER), 0, program),
        ray.worker_command(WORKER, HEAD, 0, program),
    ):
        done = _run(tuple(command), tmp_path)
        assert done.returncode == 127
        assert f"the image has no program {program[0]}." in done.stdout
        assert "ray_command" in done.stdout


def test_a_worker_tries_to_join_until_the_head_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is refused, the second one joins; without a raylet the worker ends."""
    monkeypatch.setattr(ray, "_RAYLET", "none-of-this-name")
    done = _run(tuple(ray.worker_command(WORKER, HEAD, 0, ["ray"])), tmp_path, FIRST="1")
    said = [line for line in done.stdout.splitlines() if line.startswith("sparkdash: ")]
    assert said == [
        "sparkdash: waiting for Ray at 192.168.100.10:6379",
        "sparkdash: this node has joined Ray at 192.168.100.10:6379",
        "sparkdash: this node has left Ray at 192.168.100.10:6379: its head is gone, or cannot be reached.",
    ]
    assert done.returncode == 1
    assert (tmp_path / "log").read_text().count("start --address 192.168.100.10:6379") == 2


@pytest.mark.parametrize(
    ("line", "fraction"),
    [
        ("sparkdash: starting Ray at 192.168.100.10:6379", 0.0),
        ("sparkdash: 1 of 2 nodes have joined Ray at 192.168.100.10:6379", 0.5),
        ("sparkdash: 2 of 2 nodes have joined Ray at 192.168.100.10:6379", 1.0),
        ("2026-11-21 03:04:49,097 INFO worker.py:1841 -- Connecting to existing Ray cluster at address: 1.2.3.4:6379", None),
        ("(Worker pid=3) INFO 11-21 03:07:02 [parallel_state.py:1906] world_size=2 rank=1 local_rank=0 "
         "distributed_init_method=tcp://10.77.0.1:29611 backend=nccl", None),
        ("(Worker pid=3) INFO 11-21 03:07:17 [parallel_state.py:2350] rank 1 in world size 2 is assigned as DP rank 0", 1.0),
    ],
)  # fmt: skip
def test_the_ranks_meeting_is_a_stage_of_the_load(line: str, fraction: float | None, profile: Make) -> None:
    """Before the weights, the log tells who is there."""
    progress = adapter(profile().engine).read_log(line)
    assert progress is not None
    assert (progress.stage, progress.fraction) == ("nodes", fraction)


def test_one_rank_alone_is_no_meeting(profile: Make) -> None:
    """vLLM says the same words on one box."""
    line = "world_size=1 rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:5 backend=nccl"
    assert adapter(profile().engine).read_log(line) is None


def test_a_line_from_a_ray_worker_is_shown_without_its_origin(profile: Make) -> None:
    line = (
        "(RayWorkerProc pid=9, ip=10.77.0.2) (Worker_TP0 pid=9) INFO 11-21 03:04:56 [cpu_model_runner.py:68] "
        "Starting to load model /m"
    )
    progress = adapter(profile().engine).read_log(line)
    assert progress is not None
    assert progress.detail == "Starting to load model /m"
