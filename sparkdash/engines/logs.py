"""Engine logs: the progress of a load, and the reason of a failed one. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.node import LOCAL
from sparkdash.redaction import masked

DETAIL = 100
"""Length of a log line on screen, in characters."""

_PREFIX = re.compile(
    r"^(?:\([A-Za-z_][^)]*\) *){0,2}"  # (EngineCore pid=14) of vLLM, behind (RayWorkerProc pid=9, ip=…) over Ray
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):? +(?:\d\d-\d\d \d\d:\d\d:\d\d *)?)?"
    r"(?:\[[^\]]*\] *)*"  # [file.py:7] of vLLM, [date TP0] of SGLang, [date] [TRT-LLM] [I] of TensorRT-LLM
    r"(?:\d+(?:\.\d+){3} [A-Z] (?:\w+ +)?)?"  # 0.00.005.469 I srv of llama.cpp
)

_MARK = re.compile(r"\[[a-z0-9][a-z0-9-]{0,30}\] ")  # [spark2] before the lines of another node
_NODE = re.compile(_MARK.pattern + r"(?=\()")  # of its vLLM


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile when first needed: most programs that know an engine read no log."""
    return re.compile(pattern)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Log line that reports progress. The pattern may name `pct`, or `done` and `total`; else `fraction` holds.

    It may also name `took`: the seconds of the stage up to this line.
    """

    stage: str
    pattern: str
    fraction: float | None = None


def match_progress(line: str, phrases: Sequence[Phrase]) -> LoadProgress | None:
    for known in phrases:
        if hit := _compiled(known.pattern).search(line):
            took = hit.groupdict().get("took")
            return LoadProgress(
                stage=known.stage,
                fraction=_fraction(known, hit),
                detail=detail(line),
                took_s=float(took) if took else None,
            )
    return None


def first_match(lines: Sequence[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    return next((hit for line in lines if (hit := pattern.search(line))), None)


def detail(line: str) -> str:
    """Shorten a log line to DETAIL characters, without its time stamp, origin and secrets; a node's name stays."""
    node = _NODE.match(line)
    start = node.end() if node else 0
    text = masked(line[:start] + _PREFIX.sub("", line[start:]).strip())
    return text if len(text) <= DETAIL else text[: DETAIL - 1] + "…"


def _fraction(known: Phrase, hit: re.Match[str]) -> float | None:
    groups = hit.groupdict()
    if groups.get("total"):
        return min(1.0, int(groups["done"]) / max(1, int(groups["total"])))
    if groups.get("pct"):
        return min(1.0, int(groups["pct"]) / 100)
    return known.fraction


TAIL = 20
"""Log lines kept with a failure."""

KILLED = (137, -9)
"""SIGKILL as a container's exit code and as a process's."""

NOT_FOUND = 127
"""Exit code of shells and runtimes for a missing program."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A known cause of a failure: its code (see Failure.code), its pattern in a log, what happened, what to do.

    A hint has `{profile}` in place of the profile's name: `Failure.hint_for`.
    """

    code: str
    pattern: str
    message: str
    hint: str


def cause(code: str, pattern: str, message: str, hint: str) -> Cause:
    return Cause(code, f"(?i){pattern}", message, hint)


COMMON: tuple[Cause, ...] = (
    cause(
        "disk_full",
        r"No space left on device|\bENOSPC\b|Disk quota exceeded",
        "A disk is full",
        "`df -h` shows which one: free some of it. Where the line names /dev/shm, raise `shm_size` in the profile.",
    ),
    cause(
        "rdma_failed",
        r"\bibv_modify_qp failed|Call to ibv_\w+ failed|\bncclTransportTreeConnect\b",
        "RDMA between its boxes failed",
        "`sparkdash doctor --node NAME` finds a port, GID, limit or MTU that is wrong. Remove `NCCL_IB_*` from `env`: "
        "sparkdash sets them for each box. A ring of four needs an image whose NCCL closes rings.",
    ),
    cause(
        "out_of_memory",
        r"CUDA out of memory|OutOfMemoryError|cudaMalloc failed: out of memory|cudaErrorMemoryAllocation"
        r"|NV_ERR_NO_MEMORY|std::bad_alloc|Cannot allocate memory|\bMemoryError\b",
        "It ran out of memory",
        "Give it a shorter context or a smaller KV cache, or stop what else holds memory.",
    ),
    cause(
        "port_in_use",
        r"address already in use|couldn't bind HTTP server socket|port \d+ is already (?:in use|allocated)",
        "Its port is taken",
        "Stop the other program (`ss -ltnp` names it), or change `engine_ports` in config.toml.",
    ),
    cause(
        "engine_crash",
        r"error while loading shared libraries: \S+: cannot open",
        "A shared library that its program needs is missing",
        "Use an image that has the library, or mount it.",
    ),
    cause(
        "unknown_flag",
        r"unrecognized arguments?:|error: (?:unknown|invalid) argument|no such option:|error: argument \S+: "
        r"|got unexpected extra argument",
        "It refused its command line",
        "Compare `args` in the profile with this engine version's flags; "
        "`sparkdash use NAME --dry-run` prints the command.",
    ),
    cause(
        "token_refused",
        r"gated repo|GatedRepoError|access to model \S+ is restricted|invalid user token|403 Client Error",
        "The model hub refused access",
        "Accept the model's licence on its page and log in with `hf auth login`, then try again.",
    ),
    cause(
        "model_not_found",
        r"is not a valid model identifier|Repository Not Found|RepositoryNotFoundError|RevisionNotFoundError"
        r"|Repo id must (?:be in the form|use alphanumeric)|Invalid repository ID or local directory"
        r"|failed to open GGUF file|Cannot find any model weights|does not appear to have a file named",
        "The model is not where the profile says",
        "Check `models.target` in the profile: a local path must exist on this box, a hub name must be spelt exactly.",
    ),
    cause(
        "model_not_found",
        r"couldn't connect to 'https://huggingface\.co'|LocalEntryNotFoundError|outgoing traffic has been disabled",
        "The model is not in the hub's cache on this box, and the hub cannot be reached",
        "Check the network, or fetch the model first: `sparkdash pull {profile}`.",
    ),
    cause(
        "token_refused",
        r"401 Client Error",
        "The model hub refused access",
        "Log in with `hf auth login`, then try again.",
    ),
    cause(
        "cdi_stale",
        r"Driver/library version mismatch|unsupported display driver / cuda driver combination"
        r"|cudaErrorSystemDriverMismatch",
        "The driver in the container is not that of the box",
        "The CDI description is older than the driver: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
    ),
    cause(
        "no_gpu_device",
        r"unresolvable CDI devices|failed to stat CDI|no CUDA-capable device|No CUDA GPUs are available"
        r"|Failed to infer device type|libcuda\.so\.1: cannot open|NVIDIA Driver was not detected"
        r"|CUDA driver version is insufficient|Found no NVIDIA driver",
        "It found no GPU",
        "Make the device known to the runtime: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.",
    ),
    cause(
        "engine_crash",
        r"Failed to initialize NVML: Unknown Error|NVMLError_Unknown",
        "It lost the GPU, as containers do after a reload of systemd",
        "Start it again. With docker `sudo systemctl enable --now nvidia-cdi-refresh` keeps the GPU; podman has CDI.",
    ),
    cause(
        "wrong_arch",
        r"exec format error|no kernel image is available for execution|not compatible with the current PyTorch",
        "It was built for another machine",
        "Use an image built for arm64 and SM121 (GB10).",
    ),
    cause(
        "image_missing",
        r"no such image|image not known|manifest unknown|pull access denied|short-name .*did not resolve"
        r"|unable to pull",
        "Its image is not on this box",
        "Fetch or build it first: `sparkdash pull {profile}`.",
    ),
)

# Lines that only repeat that something else went wrong, or that did not stop anything.
_ECHO = re.compile(
    r"EngineDeadError|Engine core initialization failed|Worker failed with error|: cancelled$"
    r"|WorkerProc initialization failed|\bWARNING\b|Caught handled exception, but response already started"
    r"|\bpair\.cc:\d+\]|RPC call to \w+ timed out|output_handler failed"
    r"|A worker died or was killed while executing a task"
)
# What a rank of an engine on several nodes says when another one is gone: gloo names its address, NCCL's remote too.
_PEER_GONE = re.compile(
    r"(?:Connection closed by peer|Read error|Write error|Connection reset by peer).{0,40}?\[?"
    r"(?P<peer>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:]+)\]?[:<]\d+"
)
_PEER_SILENT = re.compile(r"RPC call to \w+ timed out")
_ALL_NODES = "Its log has the lines of all nodes: `sparkdash logs {profile}`."
_FIRST_END = re.compile(
    r"^sparkdash: (?P<rank>rank \d+ on (?P<node>this box|\S+)) ended the engine: "
    r"its container (?:is gone|ended with exit code (?P<code>-?\d+))\.$"
)
# Said by what is left of an engine when one of its processes was killed or crashed without a word.
_PROCESS_DIED = re.compile(r"^(?:\[(?P<node>[a-z0-9][a-z0-9-]{0,30})\] )?.*\b(?:died|exited) unexpectedly\b")
_RAISED = re.compile(r"(?:^|[\s.])([A-Z]\w*(?:Error|Exception)): \S")
_FATAL = re.compile(r"fatal error|terminate called|Segmentation fault|failed to start|\berror:", re.IGNORECASE)


def classify(lines: Sequence[str], exit_code: int | None, own: Sequence[Cause] = ()) -> Failure:
    """Return the first cause that any line shows, `own` before COMMON; else the exception, else the exit code."""
    clean = [masked(line) for line in lines]
    who, mark = _crashed_rank(clean)
    clean = [line for line in clean if line.startswith((mark, "sparkdash: "))]
    said = [line.removeprefix(mark) for line in clean]
    for known in (*own, *COMMON):
        if line := _last(said, _compiled(known.pattern)):
            message = f"{who} failed. {known.message}" if mark else known.message
            message = f"{message}: {detail(line)}"
            tail = _tail(clean, line)
            return Failure(code=known.code, message=message, hint=known.hint, exit_code=exit_code, log_tail=tail)
    raised = _root(said)
    code, message, hint = _unknown(said, raised, exit_code, who)
    return Failure(code=code, message=message, hint=hint, exit_code=exit_code, log_tail=_tail(clean, raised))


def _tail(lines: Sequence[str], reason: str | None) -> tuple[str, ...]:
    """Return the last lines; of an engine over several nodes those of the node whose line is the reason."""
    mark = _MARK.match(reason or "") if lines and _FIRST_END.search(lines[-1]) else None
    return tuple([line for line in lines if not mark or line.startswith((mark[0], "sparkdash: "))][-TAIL:])


def _crashed_rank(lines: Sequence[str]) -> tuple[str, str]:
    """Name the rank that crashed, and what its lines begin with: nothing for the head, and where it has no lines."""
    end = _FIRST_END.search(lines[-1]) if lines else None
    if end and int(end["code"] or 0) > 0:  # ranks of vLLM whose peer has gone end with 0
        mark = f"[{LOCAL if end['node'] == 'this box' else end['node']}] "
        if any(line.startswith(mark) for line in lines):
            return end["rank"].capitalize(), mark
    return "The engine", ""


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> str | None:
    return next((line for line in reversed(lines) if pattern.search(line)), None)


def _unknown(lines: Sequence[str], raised: str | None, exit_code: int | None, who: str) -> tuple[str, str, str]:
    if raised:
        return ("engine_crash", f"{who} died: {detail(raised)}", "The whole log is under `sparkdash logs {profile}`.")
    if found := _on_several_nodes(lines):
        return found
    if line := _last(lines, _PROCESS_DIED):
        hint = "It was killed, or crashed in its driver; `journalctl -k` tells of both."
        return "engine_crash", f"One of its processes ended without a word: {detail(line)}", hint
    if exit_code in KILLED:
        hint = (
            "`journalctl -k` tells whether the kernel ran out of memory: then choose a smaller context or KV cache. "
            "Otherwise somebody on this box killed it."
        )
        return "out_of_memory", "The engine was killed (SIGKILL) without a word", hint
    if exit_code == NOT_FOUND:
        return "engine_crash", "Its program was not found", "Check `command` in the profile, and the image."
    ended = "The engine ended" if exit_code is None else f"The engine ended with code {exit_code}"
    return "engine_crash", f"{ended} and its log names no reason", "The whole log is under `sparkdash logs {profile}`."


def _on_several_nodes(lines: Sequence[str]) -> tuple[str, str, str] | None:
    """Tell which node an engine on several nodes lost, where its ranks name no reason of their own."""
    end = next((hit for line in reversed(lines) if (hit := _FIRST_END.search(line))), None)
    if end and end["code"] and int(end["code"]) in KILLED:
        text = f"Its container on {end['node']} was killed (SIGKILL) without a word"
        return "out_of_memory", text, f"`journalctl -k` on {end['node']} tells whether the kernel ran out of memory."
    if died := _last(lines, _PROCESS_DIED):
        return _process_died(died, is_several=end is not None)
    lost = _lost_peer(lines, end)
    return ("peer_lost", lost, _ALL_NODES) if lost else None


def _process_died(line: str, *, is_several: bool) -> tuple[str, str, str] | None:
    """Name the process that ended; None where neither its line nor another one tells of several nodes."""
    found = _PROCESS_DIED.search(line)
    node = found["node"] if found else None
    if not node and not is_several:
        return None
    kernel = f"It was killed, or crashed in its driver; `journalctl -k` on {node} tells of both."
    return "peer_lost", f"One of its processes ended without a word: {detail(line)}", kernel if node else _ALL_NODES


def _lost_peer(lines: Sequence[str], end: re.Match[str] | None) -> str | None:
    """Say which part of the engine was lost; `end` is the line of the container that ended first."""
    gone = next((hit for line in lines if (hit := _PEER_GONE.search(line))), None)
    if gone:
        return f"It lost the connection to its part on {gone['peer']}"
    if end:
        how = "was removed" if end["code"] is None else f"ended with code {end['code']}, and its log names no reason"
        return f"Its container on {end['node']} {how}"
    return "Its part on another node did not answer in time" if _last(lines, _PEER_SILENT) else None


def _root(lines: Sequence[str]) -> str | None:
    """Find the line of the root cause: the first exception raised, since later ones follow from it.

    Without an exception, the last line that says error. None when a process died without a word, or a peer is gone:
    errors follow from that.
    """
    own_words = [line for line in lines if not _ECHO.search(line)]
    first = next((line for line in own_words if _RAISED.search(line)), None)
    lost_one = _last(lines, _PROCESS_DIED) or _last(lines, _PEER_GONE)
    return first or (None if lost_one else _last(own_words, _FATAL))
