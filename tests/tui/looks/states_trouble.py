"""States of the dashboard while something loads, fails, is held back, or cannot be reached."""

from typing import Any

from screen_shots import State
from states_serving import EMBED, minutes_before

from sparkdash.domain.engine import EngineState, Liveness, LivenessState, Parked, RepairStep
from sparkdash.domain.event import Level, Measuring, Notice
from sparkdash.domain.memory import Floors, Guard, GuardKill, GuardLevel
from sparkdash.domain.metric import Gpu, LinkSample, Memory, NodeSample
from sparkdash.domain.node import LOCAL, Diagnosis, Finding, NodeState, NodeStatus, Status
from sparkdash.domain.swap import DefaultProfile, SwapOutcome, SwapPhase
from sparkdash.errors import DaemonError
from sparkdash.tui.first_run import BoxFindings, RunningServer
from sparkdash.units import GIB

UNKNOWN: dict[str, Any] = {
    "fraction": None, "eta_s": None, "eta_low_s": None, "eta_high_s": None, "eta_at": None, "learned_from": 0,
    "expected_s": None, "progress": None, "waiting": 0,
}  # fmt: skip
"""A swap of which no other was seen before."""


class Looking:
    """A look at this box that finds what it is told."""

    def __init__(self, found: BoxFindings) -> None:
        self.found = found

    async def look(self, _profiles: Any) -> BoxFindings:
        return self.found


def stuck(box: Any) -> Any:
    live = Liveness(
        state=LivenessState.STUCK, why="2 running, no token for 2m05s", since=box.now - 165, step=RepairStep.CANCEL,
        step_since=box.now - 40,
    )  # fmt: skip
    return box.snapshot(engines={box.gpt: box.engine(liveness=live)})


def guarded(box: Any, level: GuardLevel = GuardLevel.HOLD, available: int = 7, mode: str = "act") -> Any:
    kill = GuardKill(at=box.now - 300, profile=EMBED, available=3 * GIB, reason="3.0 GiB available, floor 4.0.")
    floors = Floors(warn=12 * GIB, hold=8 * GIB, kill=5 * GIB)
    sample = box.sample(available=available * GIB, free=2 * GIB, page_cache=(available - 2) * GIB, pressure=0.31)
    return box.snapshot(guard=Guard(mode=mode, floors=floors, level=level, kills=(kill,)), sample=sample)


def failed(box: Any) -> Any:
    died = box.engine(box.coder, EngineState.FAILED, failure=box.failure, ready_at=None, load_s=None)
    return box.snapshot(engines={box.coder: died}, requests={})


def failed_beside(box: Any) -> Any:
    died = box.engine(box.coder, EngineState.FAILED, failure=box.failure, ready_at=None, load_s=None)
    swap = box.ended("s9", SwapOutcome.FAILED, took=48.0, ended_at=box.now - 60, failure=box.failure)
    return box.snapshot(engines={box.gpt: box.engine(), box.coder: died}, swaps=(swap,))


def idle(box: Any) -> Any:
    return box.snapshot(engines={}, requests={}, recent=(), sample=None, swaps=())


def empty(box: Any) -> Any:
    """A new box: no profile, no engine, no past."""
    sample = box.sample(engines={}, available=112 * GIB, free=90 * GIB, page_cache=22 * GIB).replace(engines={})
    return box.snapshot(engines={}, requests={}, recent=(), sample=sample, swaps=(), profiles=(), figures={},
                        toggle_a=None, toggle_b=None)  # fmt: skip


def found_on_the_box(box: Any) -> Looking:
    server = RunningServer("Ollama", "http://127.0.0.1:11434", ("qwen3-8b", "gemma4-4b", "phi-4"))
    return Looking(BoxFindings(servers=(server,), clients=("codex", "zed"),
                               configuration="/home/me/llama-swap.yaml"))  # fmt: skip


def examined(box: Any, daemon: Any) -> None:
    levels = (Status.FAIL, Status.WARN, Status.OK, Status.NOTE, Status.UNKNOWN)
    daemon.diagnosis = Diagnosis(findings=tuple(
        Finding(name=f"check-{at}", status=one, evidence=f"/proc/{at}/status says what was found there, in many words "
                f"that do not fit into one row of a narrow terminal.", fix=None if at > 1 else f"sudo repair --number {at}")
        for at, one in enumerate(levels)
    ))  # fmt: skip


def node(box: Any, status: NodeStatus = NodeStatus.REACHABLE, **changes: Any) -> NodeState:
    values: dict[str, Any] = {"name": "spark2", "status": status, "since": box.now - 62, "link": "enp1s0f1np1"}
    return NodeState(**(values | changes))


def of_both(box: Any, at: float, **held: int) -> dict[str, NodeSample]:
    """Figures of the other box, and of this one's end of the cable."""
    memory = Memory(
        total=int(121.7 * GIB), available=21 * GIB, free=8 * GIB, page_cache=13 * GIB, reserve=10 * GIB, engines=held
    )
    gpu = Gpu(utilization=0.91, power_w=58.0, temperature_c=69.0, sm_clock_mhz=2380.0)
    port = LinkSample(
        name="rocep1s0f1", rdma=True, received_bytes_s=380e6, sent_bytes_s=375e6, errors=0, up=True, rate_gbit_s=200.0
    )
    return {"spark2": NodeSample(at=at, memory=memory, gpu=gpu), LOCAL: NodeSample(at=at, links=(port,))}


def two_boxes(box: Any) -> Any:
    name = "qwen3.5-397b-2x"
    sample = box.sample(profile=name, engines={name: 98 * GIB}, available=16 * GIB, free=2 * GIB, page_cache=4 * GIB)
    profiles = (*box.snapshot().profiles, box.profile(name, nodes=2, needs_bytes=98 * GIB))
    return box.snapshot(nodes={"spark2": node(box)}, engines={name: box.engine(name, nodes=(LOCAL, "spark2"))}, profiles=profiles,
                        sample=sample.replace(nodes=of_both(box, box.now, **{name: 98 * GIB})))  # fmt: skip


def node_silent(box: Any) -> Any:
    state = node(box, NodeStatus.UNREACHABLE, reason="ssh to spark2 timed out after 9 s. Check its cable and its power.",
                 owed=("sparkdash-gemma",))  # fmt: skip
    return box.snapshot(nodes={"spark2": state}, sample=box.sample().replace(nodes=of_both(box, box.now - 65)))


def node_refused(box: Any) -> Any:
    """The other box has another host key; it was never reached."""
    return box.snapshot(nodes={"spark2": node(box, NodeStatus.REFUSED, reason="Its host key changed.", link=None)})


def loads_beside(box: Any) -> Any:
    coming = box.engine(box.coder, EngineState.LOADING, since=box.now - 60, ready_at=None, load_s=None)
    return box.snapshot(engines={box.gpt: box.engine(), box.coder: coming}, swap=box.swap(evict=()))


def draining(box: Any) -> Any:
    going = box.engine(box.gpt, EngineState.DRAINING)
    swap = box.swap(phase=SwapPhase.DRAIN, progress=None, waits_for="2 requests of gpt-oss-120b", until=box.now + 48,
                    stage_s={}, fraction=0.01)  # fmt: skip
    return box.snapshot(engines={box.gpt: going}, swap=swap)


def parked(box: Any) -> Any:
    """A profile is parked, profile files have problems, notices came."""
    notices = (
        Notice(level=Level.WARNING, code="pull", text="The image of qwen3.5-122b is not on this box; `sparkdash pull` fetches it.", at=box.now - 20),
        Notice(level=Level.ERROR, code="park", text="It failed three times within ten minutes.", profile=box.coder, at=box.now - 90),
        Notice(level=Level.INFO, code="edit", text="config.toml was read again.", at=box.now - 400),
    )  # fmt: skip
    return box.snapshot(parked={box.coder: Parked(since=box.now - 90, failures=3, failure=box.failure)}, notices=notices,
                        problems=("/home/me/.config/sparkdash/profiles/mine.yaml:7: engine: must be one of vllm, not 'vlm'",),
                        default=DefaultProfile(profile=box.gpt, after_s=900.0), unadopted=("old-model",))  # fmt: skip


def measuring(box: Any) -> Any:
    now = Measuring(run="20261121-200000-seeds", doing="measuring", arm="eagle", cell="ctx 2K x 150", launch=2, launches=4,
                    done=15, cells=36, share=0.42, left_s=4320.0, at=box.now)  # fmt: skip
    return box.snapshot(measuring=now)


def refused(code: str, message: str, hint: str) -> Any:
    return lambda box: DaemonError(message, code=code, hint=hint)


STATES = {
    "swap": State(lambda box: box.swapping(), shows=("33 %",)),
    "swap-first": State(lambda box: box.swapping(swap=box.swap(**UNKNOWN), requests={}), shows=("no estimate",)),
    "swap-longer-than-usual": State(lambda box: box.swapping(
        swap=box.swap(fraction=0.95, eta_s=10.0, eta_low_s=8.0, eta_high_s=12.0, eta_at=box.now - 300, started_at=box.now - 520))),
    "swap-stalled": State(lambda box: box.swapping(swap=box.swap(still_since=box.now - 130, gives_up_at=box.now + 170)),
                          shows=("stalled",)),
    "swap-drains": State(draining),
    "swap-beside-one-that-serves": State(loads_beside, prepare=minutes_before),
    "stuck": State(stuck, prepare=minutes_before),
    "guard-holds": State(guarded, shows=("guard holds loads back",)),
    "guard-killed": State(lambda box: guarded(box, GuardLevel.OK, 30)),
    "failed": State(failed, shows=("out_of_memory",)),
    "failed-beside": State(failed_beside),
    "nothing-known": State(idle),
    "empty-box": State(empty),
    "first-run": State(empty, prepare=examined, look=found_on_the_box),
    "no-daemon-yet": State(lambda box: None, shows=("connecting",)),
    "no-daemon-for-long": State(lambda box: None, later_s=9.0, shows=("sparkdash serve",)),
    "link-lost": State(lambda box: (box.snapshot(), box.lost), later_s=75.0, prepare=minutes_before, shows=("link lost",)),
    "other-major-version": State(refused(
        "daemon_version", "The daemon is version 2.3.0; this dashboard is 0.1.0 and follows 0.x only.",
        "Update with `uv tool upgrade sparkdash`, or start the daemon again with this version."), shows=("2.3.0",)),
    "figures-are-old": State(lambda box: box.snapshot(), later_s=45.0, prepare=minutes_before, shows=("45s old",)),
    "two-boxes": State(two_boxes),
    "two-boxes-one-silent": State(node_silent),
    "two-boxes-one-refused": State(node_refused),
    "parked-and-notices": State(parked),
    "a-b-run-under-way": State(measuring, prepare=minutes_before),
}  # fmt: skip
