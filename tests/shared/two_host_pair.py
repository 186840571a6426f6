"""Profiles of a small engine that runs on one of two hosts, or on both, and its start."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from two_hosts import HERE, HostDaemon, TwoHosts
from vllm_cache import kept_cache

NAME = "pair"
HEAD, WORKER = "sparkdash-pair", "sparkdash-pair-worker1"
GATES = "/root/gates"
"""Folder of each host whose files hold the engine up; see pair_engine."""
RANK = "^(VLLM::Worker|ray::RayWorkerProc)|spawn_main"
"""Command line of a process that computes a rank.

vLLM's own title is lost, and Python's stays, where the first variable of the container was set anew before
setproctitle looked for the title's place: torch does so with TORCHINDUCTOR_CACHE_DIR, and podman's order is random.
"""
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc")


def profile(nodes: int = 2, name: str = NAME, **more: Any) -> dict[str, Any]:
    base = str(Path(os.path.realpath(sys.executable)).parents[1])
    places = dict.fromkeys((*SYSTEM, base, str(HERE.parents[1])))
    args = {"tensor-parallel-size": nodes} if nodes > 1 else {}
    return {
        "profile": name,
        "engine": "vllm",
        "image": TwoHosts.image,
        "models": {"target": {"path": str(HERE / "shim")}},
        "gpu": False,
        "command": [os.path.realpath(sys.executable), str(HERE / "pair_engine.py")],
        "mounts": [
            *({"source": place, "target": place} for place in places),
            {"source": GATES, "target": "/gates", "read_only": False},
        ],
        "memory": {"weights_gib": 0.05, "kv_gib": 0.05, "overhead_gib": 0.05, "source": "measured"},
        "nodes": nodes,
        "args": args,
        **more,
    }


def duo(hosts: TwoHosts, engine: Path, ray: Path) -> dict[str, Any]:
    """Profile `duo` by native launch, with its variant `ray`."""
    python = Path(os.path.realpath(engine / "venv/bin/python")).parents[1]
    places = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", python, engine, ray, HERE / "shim")
    variables, mount = kept_cache(engine)
    return {
        "profile": "duo",
        "about": "a quarter of a million random parameters over two hosts, for tests",
        "engine": "vllm",
        "engine_version": "0.32",
        "image": hosts.image,
        "command": [str(engine / "venv/bin/vllm"), "serve"],
        "gpu": False,
        "nodes": 2,
        "models": {"target": {"path": str(engine / "tiny-qwen3")}},
        "mounts": [{"source": str(place), "target": str(place)} for place in dict.fromkeys(places)] + [mount],
        "tmpfs": ["/scratch", "/tmp"],
        "shm_size": "256m",
        "env": {
            "HOME": "/scratch",
            "TMPDIR": "/scratch",
            "XDG_CACHE_HOME": "/scratch",
            "HF_HOME": "/scratch/hf",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "100",
            "OMP_NUM_THREADS": "1",
            **variables,
        },
        "args": {
            "tensor-parallel-size": 2,
            "max-model-len": 4096,
            "max-num-seqs": 8,
            "enforce-eager": True,
            "block-size": 32,
        },
        "memory": {"weights_gib": 0.1, "kv_gib": 1, "overhead_gib": 2, "source": "measured: 2.1-3.8 GiB a node"},
        "variants": {
            "ray": {
                "args": {"distributed-executor-backend": "ray"},
                "env": {
                    "PATH": f"{ray}/bin:/usr/bin:/bin",
                    "PYTHONPATH": f"{ray}/lib:{HERE / 'shim'}",
                    "VLLM_CPU_RAY": "1",
                },
            },
        },
    }


@contextmanager
def shut(hosts: TwoHosts, gate: str, *on: str) -> Iterator[None]:
    """Hold the engine up at a gate on these hosts; see pair_engine."""
    files = [hosts.folder / host / "home" / "gates" / gate for host in on]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    try:
        yield
    finally:
        for file in files:
            file.unlink()


def begin(daemon: HostDaemon, name: str = NAME) -> None:
    """Begin to start the engine, and do not wait for it."""
    deadline = time.monotonic() + 30
    while (told := daemon.call("POST", "/api/use", {"profile": name}, 60))[0] >= 300:
        assert time.monotonic() < deadline, told
        time.sleep(0.2)


def until_engine(daemon: HostDaemon, *states: str, name: str = NAME, limit_s: float = 90) -> dict[str, Any]:
    """Wait until the engine is in one of these states; what is told of it."""
    state = daemon.until_state(lambda state: state["engines"].get(name, {}).get("state") in states, limit_s)
    return dict(state["engines"][name])


def up(daemon: HostDaemon, name: str = NAME) -> None:
    begin(daemon, name)
    engine = until_engine(daemon, "ready", "failed", name=name)
    assert engine["state"] == "ready", (engine, daemon.state()["swaps"], daemon.state()["notices"][:5])


def failure_of(daemon: HostDaemon, name: str = NAME) -> dict[str, Any]:
    """Wait until the engine has failed; the failure."""
    return dict(until_engine(daemon, "failed", name=name)["failure"])


def until_gone(hosts: TwoHosts, *on: str, limit_s: float = 90) -> None:
    """Wait until these hosts have no container. A node that was silent is tried every 15 s."""
    deadline = time.monotonic() + limit_s
    while left := {host: found for host in on if (found := hosts.containers(host))}:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def plug_in(hosts: TwoHosts, daemon: HostDaemon) -> None:
    """Plug the cable in again and have the silent node tried now; by itself the daemon does so within 15 s."""
    hosts.link(up=True)
    daemon.post("/api/reload", {})


def notices(daemon: HostDaemon) -> str:
    return "\n".join(each["text"] for each in daemon.state()["notices"])


def registry(hosts: TwoHosts, boxes: Mapping[str, str]) -> str:
    """Text of nodes.toml with these hosts, by the name of their box."""
    keys = {host: (hosts.folder / host / "ssh_host.pub").read_text().split() for host in boxes.values()}
    return "".join(
        f'[{box}]\nssh = "root@{hosts.address[host]}"\nhost_key = "{keys[host][0]} {keys[host][1]}"\n'
        for box, host in boxes.items()
    )


def answer(daemon: HostDaemon, model: str, timeout: float = 90) -> str:
    """Ask for four tokens; return why the answer ended."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": 4}).encode()
    request = urllib.request.Request(f"{daemon.url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return str(json.load(reply)["choices"][0]["finish_reason"])
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None


def daemon_that_knows_b(
    hosts: TwoHosts, made: HostDaemon, profile_more: dict[str, Any] | None = None, **node: str
) -> HostDaemon:
    """Start a daemon of host a with host b in its registry; `node`: more lines of its entry."""
    more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in node.items())
    (made.root / "config" / "nodes.toml").write_text(registry(hosts, {"spark2": "b"}) + more)
    (made.profiles / f"{NAME}.yaml").write_text(json.dumps(profile(**(profile_more or {}))))
    made.start()
    made.until_state(lambda state: state["nodes"].get("spark2", {}).get("status") == "reachable")
    return made


@contextmanager
def opened_stream(daemon: HostDaemon, body: dict[str, Any]) -> Iterator[Iterable[bytes]]:
    """Lines of a chat's stream through the gateway."""
    request = urllib.request.Request(
        f"{daemon.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=100) as lines:
        yield lines
