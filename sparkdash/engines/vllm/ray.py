"""Shell programs that make a Ray cluster out of an engine's containers, and then become the engine's server.

The head's shell ends as the server itself, so that the container's state and log are the server's. A worker's ends with
the raylet on its node, which gives up one minute after it lost the head (Ray 2.60). Pure.
"""

import shlex
from collections.abc import Sequence

from sparkdash.domain.node import NodeLaunch
from sparkdash.engines.logs import Phrase

PORT = 6379
"""Ray's own default for the port of its control store, used where no free port was chosen."""

JOIN_S = 600
"""Longest wait for the other nodes in seconds: a box that reads a large image for the first time takes minutes."""

SHELL = "/bin/sh"
_RAYLET = "raylet"
"""Name of Ray's process on each node, as the kernel has it."""

# No more than vLLM asks of Ray. Ray starts a process of some 100 MB for each CPU that it counts, and reserves 30 % of
# the memory for objects; vLLM's tensors go through NCCL or Gloo.
_SIZES = ("--num-gpus", "1", "--num-cpus", "2", "--object-store-memory", "1000000000")

ENVIRONMENT = {
    "RAY_memory_monitor_refresh_ms": "0",  # it kills at 95 % of a memory that engines fill: dgx-spark-playbooks@0db7c14
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",  # else a worker's error shows up in pieces
    "RAY_COLOR_PREFIX": "0",  # else each worker's line in the head's log begins with a colour
}

PHRASES = (
    Phrase("nodes", r"sparkdash: starting Ray", 0.0),
    Phrase("nodes", r"sparkdash: (?P<done>\d+) of (?P<total>\d+) nodes have joined Ray"),
    Phrase("nodes", r"sparkdash: this node has joined Ray", 1.0),
)

_HEAD = """\
trap "exit 143" TERM INT
command -v {program} >/dev/null || {{ echo "sparkdash: the image has no program {program}. Use an image with Ray, or \
name the program as ray_command in the profile."; exit 127; }}
echo "sparkdash: starting Ray at {address}"
{ray} start --head --node-ip-address {ip} --port {port} {sizes} --include-dashboard=false --disable-usage-stats &
wait $! || {{ echo "sparkdash: Ray did not start on this node."; exit 1; }}
began=$(date +%s)
while :; do
  joined=$({ray} status --address {address} 2>/dev/null | sed -n "/^Active:/,/^Pending:/p" | grep -c " node_")
  echo "sparkdash: $joined of {count} nodes have joined Ray at {address}"
  [ "$joined" -ge {count} ] && break
  if [ $(($(date +%s) - began)) -ge {limit} ]; then
    echo "sparkdash: only $joined of {count} nodes joined Ray at {address} within {limit} s. Missing: {missing}."
    exit 1
  fi
  sleep 1 &
  wait $!
done
export RAY_ADDRESS={address}
exec "$@"
"""

_WORKER = """\
trap "exit 143" TERM INT
command -v {program} >/dev/null || {{ echo "sparkdash: the image has no program {program}. Use an image with Ray, or \
name the program as ray_command in the profile."; exit 127; }}
has_raylet() {{
  for file in /proc/[0-9]*/comm; do
    read -r name 2>/dev/null <"$file" && [ "$name" = {raylet} ] && return 0
  done
  return 1
}}
began=$(date +%s)
until {ray} start --address {address} --node-ip-address {ip} {sizes} & wait $!; do
  if [ $(($(date +%s) - began)) -ge {limit} ]; then
    echo "sparkdash: Ray at {address} did not answer this node ({ip}) within {limit} s."
    exit 1
  fi
  echo "sparkdash: waiting for Ray at {address}"
  sleep 1 &
  wait $!
done
echo "sparkdash: this node has joined Ray at {address}"
while has_raylet; do
  sleep 2 &
  wait $!
done
echo "sparkdash: this node has left Ray at {address}: its head is gone, or cannot be reached."
exit 1
"""


def head_command(command: Sequence[str], nodes: Sequence[NodeLaunch], port: int, ray: Sequence[str]) -> list[str]:
    """Build the head's command: start Ray, wait until all nodes have joined, then become `command`."""
    head, *others = nodes
    missing = ", ".join(f"{node.name} ({node.address})" for node in others)
    text = _HEAD.format(**_words(head, head.address, port, ray), count=len(nodes), limit=JOIN_S, missing=missing)
    return [SHELL, "-c", text, "sparkdash", *command]


def worker_command(node: NodeLaunch, head: NodeLaunch, port: int, ray: Sequence[str]) -> list[str]:
    """Build a worker's command: join the head's cluster as soon as it is there, and end with it."""
    return [SHELL, "-c", _WORKER.format(**_words(node, head.address, port, ray), limit=JOIN_S)]


def _words(node: NodeLaunch, head: str, port: int, ray: Sequence[str]) -> dict[str, str]:
    address = f"[{head}]:{port or PORT}" if ":" in head else f"{head}:{port or PORT}"
    return {
        "program": shlex.quote(ray[0]),
        "ray": shlex.join(ray),
        "ip": node.address,
        "port": str(port or PORT),
        "address": address,
        "sizes": " ".join(_SIZES),
        "raylet": _RAYLET,
    }
