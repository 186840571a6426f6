"""`sparkdash status`, and the text that it is made of."""

import threading
from collections.abc import Callable
from typing import Any

from fake_daemon import BIRTH, GIB, FakeDaemon, engine, sample, swap

from sparkdash.cli.status_page import status_lines
from sparkdash.domain.container import ForeignContainer
from sparkdash.domain.engine import EngineState, Failure, LoadProgress, Parked
from sparkdash.domain.event import Level, Measuring, Notice
from sparkdash.domain.memory import Floors, Guard, GuardKill, GuardLevel
from sparkdash.domain.metric import (
    EngineSample,
    GatewayFigures,
    Gpu,
    LinkSample,
    LiveRequest,
    Memory,
    Metric,
    NodeSample,
)
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Start, Step, SwapPhase

Run = Callable[..., Any]

BUSY = {
    "at": BIRTH + 3700,
    "engines": {"gpt-oss-120b": engine("gpt-oss-120b", version="0.22.1")},
    "requests": {
        "1": Request(id="1", client="codex", profile="gpt-oss-120b", route="chat", state=RequestState.STREAMING,
                     started_at=BIRTH, prompt_tokens=18204, ttft_s=0.38),
        "2": Request(id="2", client="aider", profile="qwen", route="chat", state=RequestState.WAITING,
                     started_at=BIRTH, position=1),
    },
    "sample": sample(
        at=BIRTH + 3700,
        engines={"gpt-oss-120b": EngineSample(
            at=BIRTH + 3700, acceptance_at=(0.81, 0.62),
            values={Metric.DECODE: 57.94, Metric.PREFILL: 2140, Metric.PREFIX_HIT: 0.76, Metric.RUNNING: 2,
                    Metric.WAITING: 0, Metric.KV_USED: 0.41, Metric.ACCEPTANCE_LENGTH: 2.43})},
        memory=Memory(total=int(121.7 * GIB), available=int(16.4 * GIB), free=GIB, reserve=10 * GIB,
                      engines={"gpt-oss-120b": int(78.2 * GIB)}),
        gpu=Gpu(utilization=0.96, power_w=62, temperature_c=71),
    ),
}  # fmt: skip


def test_a_busy_box_in_words(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(**BUSY)
    assert (
        sparkdash("status").out
        == """\
daemon    sparkdash 0.1.0 on spark-1, up 1h01m
url       http://127.0.0.1:8484/v1  (podman)
engine    gpt-oss-120b  vllm 0.22.1  ready  1h01m
speed     decode 57.9 tok/s (each -)  prompt -  ttft p50 -
cache     prefix 76 % (lifetime -)  kv 41 %
accept    0.81 0.62  mean acceptance length 2.43
queue     running 2  waiting 0
memory    16.4 GiB available of 121.7 GiB  engines 78.2 GiB  reserve 10.0 GiB
gpu       96 %  62 W  71 °C  -
swap      -
requests  2 in flight
  client  profile       state     prompt  out  ttft  tok/s
  codex   gpt-oss-120b  decodes    18.2k    -  0.38      -
  aider   qwen          waits #1       -    -     -      -
"""
    )


def test_an_attached_servers_figures_are_the_gateways_and_marked(daemon: FakeDaemon) -> None:
    gateway = GatewayFigures(
        in_flight=64, decode_tok_s=3000.4, decode_each_tok_s=46.9, ttft_p50_s=0.2, requests=7, output_tokens=18204
    )
    told = sample(at=BIRTH + 9, engines={"a": EngineSample(at=BIRTH + 9, gateway=gateway)})
    lines = text(daemon, at=BIRTH + 9, engines={"a": engine("a")}, sample=told).splitlines()
    assert "speed     decode ~3000.4 tok/s (each ~46.9)  prompt -  ttft p50 0.20 s" in lines
    assert "queue     in flight ~64  ~ counted by the gateway" in lines
    assert "ended     7 requests  18.2k output tokens" in lines


def test_several_engines_have_one_rate_together(daemon: FakeDaemon) -> None:
    """The sum of what the engines tell and of what only the gateway counted; one engine is not told twice."""
    own = EngineSample(at=BIRTH + 9, values={Metric.DECODE: 57.9})
    silent = EngineSample(at=BIRTH + 9, gateway=GatewayFigures(decode_tok_s=54.5))
    together = "box       decode ~112.4 tok/s, all engines together"
    both = {"a": engine("a"), "b": engine("b")}
    told = sample(at=BIRTH + 9, engines={"a": own, "b": silent})
    assert together in text(daemon, at=BIRTH + 9, engines=both, sample=told).splitlines()
    assert "all engines" not in text(daemon, sample=sample(at=BIRTH + 9, engines={"a": own}))


def test_a_running_request_tells_its_tokens_so_far(daemon: FakeDaemon) -> None:
    live = LiveRequest(profile="a", output_tokens=312, tok_s=57.1, silent_s=0.1)
    request = Request(id="1", client="codex", profile="a", route="chat", state=RequestState.STREAMING,
                      started_at=BIRTH, granted_at=BIRTH + 3, prompt_estimate=4410, ttft_s=0.4)  # fmt: skip
    told = sample(at=BIRTH + 9, requests={"1": live})
    lines = text(daemon, at=BIRTH + 9, requests={"1": request}, sample=told).splitlines()
    assert lines[-1].split() == ["codex", "a", "decodes", "6s", "~4.4k", "~312", "0.40", "57.1"]
    told = sample(at=BIRTH + 9, requests={"1": live.replace(silent_s=40.0)})
    assert "no token 40s" in text(daemon, at=BIRTH + 9, requests={"1": request}, sample=told)


def test_a_waiting_request_tells_what_it_waits_for(daemon: FakeDaemon) -> None:
    waits = {"client": "aider", "route": "chat", "state": RequestState.WAITING, "started_at": BIRTH}
    requests = {
        "1": Request(id="1", profile="b", **waits),
        "2": Request(id="2", profile="a", position=2, **waits),
        "3": Request(id="3", profile="unknown", **waits),
    }
    loads = swap("b", SwapPhase.LOAD, fraction=0.63)
    lines = text(daemon, engines={"a": engine("a")}, requests=requests, swap=loads).splitlines()
    phases = [" ".join(line.split()[2:-4]) for line in lines[-3:]]
    assert phases == ["waits load 63 %", "waits #2 queue", "waits"]


def test_json_is_the_snapshot(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(**BUSY)
    done = sparkdash("status", "--json")
    assert Snapshot.model_validate_json(done.out) == daemon.bus.snapshot
    assert done.err == ""


def text(fake: FakeDaemon, **changes: Any) -> str:
    fake.set(**changes)
    return "\n".join(status_lines(fake.bus.snapshot))


def test_an_idle_box_says_what_to_type(daemon: FakeDaemon) -> None:
    told = text(daemon)
    assert "engine    -  none runs; `sparkdash use PROFILE` starts one" in told
    assert "memory    -" in told
    assert "requests  none in flight" in told


def test_a_simulated_box_is_marked(daemon: FakeDaemon) -> None:
    info = daemon.bus.snapshot.daemon.model_copy(update={"simulated": True})
    told = text(daemon, daemon=info, engines={"a": engine("a", simulated=True)})
    assert [line for line in told.splitlines() if line.endswith("SIMULATED")] == told.splitlines()[
        :1
    ] + told.splitlines()[2:3]


def test_a_swap_shows_phase_share_and_time(daemon: FakeDaemon) -> None:
    progress = LoadProgress(stage="weights", fraction=0.63)
    now = swap("b", SwapPhase.LOAD, progress=progress)
    told = text(daemon, swap=now, at=BIRTH + 103)
    assert "swap      to b: load weights 63 %  43s, first load here" in told
    assert "swap      to c: warm  43s, first load here\n" in text(daemon, swaps_beside=(swap("c", SwapPhase.WARM),))
    eta = {"fraction": 0.38, "eta_s": 110.0, "eta_low_s": 90.0, "eta_high_s": 140.0, "eta_at": BIRTH + 93}
    start = Start(stages=(Step(name="process", s=12), Step(name="imports", s=8.2)), first_on_image=True)
    told = text(daemon, swap=now.replace(**eta, start=start), at=BIRTH + 103)
    assert "swap      to b: load weights 63 %  38 % in 43s, about 1m40s left (1m20s to 2m10s)\n" in told
    assert "          first start on this image, after process 12s, imports 8.2s\n" in told


def test_a_run_that_is_measured_is_told_until_it_falls_silent(daemon: FakeDaemon) -> None:
    now = Measuring(
        run="20261121-200000-seeds", doing="measuring", arm="eagle", cell="ctx=2K 150", launch=2, launches=4, done=15,
        cells=36, share=0.42, left_s=4320.0, at=BIRTH,
    )  # fmt: skip
    told = "bench     20261121-200000-seeds  42 %, about 1h12m left\n          eagle: ctx=2K 150\n"
    assert told in text(daemon, measuring=now, at=BIRTH + 5)
    assert "bench" not in text(daemon, measuring=now, at=BIRTH + 30)


def test_the_guard_tells_its_floors_its_level_and_its_last_kill(daemon: FakeDaemon) -> None:
    floors = Floors(warn=12 * GIB, hold=8 * GIB, kill=5 * GIB)
    guard = Guard(mode="act", floors=floors)
    assert "guard     ok  under 12.0 GiB warns, 8.0 holds loads back, 5.0 kills\n" in text(daemon, guard=guard)
    kill = GuardKill(at=BIRTH, profile="qwen", available=4 * GIB, reason="It was too much.")
    guard = Guard(mode="act", floors=floors, level=GuardLevel.HOLD, since=BIRTH + 60, kills=(kill,))
    told = text(daemon, guard=guard, at=BIRTH + 90)
    assert "guard     hold for 30s  under 12.0 GiB warns" in told
    assert "          killed qwen 1m30s ago, at 4.0 GiB available\n" in told
    assert "under 12.0 GiB warns, and does no more" in text(daemon, guard=Guard(mode="warn", floors=floors))
    assert "guard     off\n" in text(daemon, guard=Guard(mode="off"))


def test_a_gpu_stuck_in_its_low_power_state_is_told(daemon: FakeDaemon) -> None:
    slow = sample(gpu=Gpu(utilization=0.96, power_w=19.5, sm_clock_mhz=799), low_power=True)
    assert "          stuck in its low-power state" in text(daemon, sample=slow)


def test_a_box_that_holds_up_the_others_of_its_engine_is_named(daemon: FakeDaemon) -> None:
    """By its clock, and only while all compute: a rank that waits for nothing clocks down."""

    def told(*clocks: float, busy: float = 0.96) -> str:
        here, *others = (Gpu(utilization=busy, sm_clock_mhz=clock) for clock in clocks)
        nodes = {f"spark{at}": NodeSample(at=BIRTH, gpu=gpu) for at, gpu in enumerate(others, 2)}
        wide = engine("a", nodes=(LOCAL, *nodes))
        lines = text(daemon, engines={"a": wide}, sample=sample(gpu=here, nodes=nodes)).splitlines()
        return next(line for line in lines if line.startswith("engine"))

    assert told(2000, 2010, 1200).endswith(
        "on spark-1 + spark2 + spark3  spark3 is 40 % slower than the others: clock 1.2 GHz"
    )
    assert "spark-1 is 40 % slower" in told(1200, 2000)
    assert "slower" not in told(2000, 1700) + told(2000, 1200, busy=0.1)


def test_tensors_that_go_over_sockets_while_rdma_stands_still_are_told(daemon: FakeDaemon) -> None:
    """NCCL falls back without a word, and the engine is half as fast."""

    def told(rdma: float | None, tcp: float, decode: float = 6.0) -> bool:
        ports = LinkSample(name="rocep1s0f1", rdma=True, received_bytes_s=rdma, sent_bytes_s=rdma, up=True)
        lan = LinkSample(name="enP7s7", received_bytes_s=tcp, sent_bytes_s=tcp, up=True)
        figures = {"a": EngineSample(at=BIRTH, values={Metric.DECODE: decode})}
        node = NodeSample(at=BIRTH, links=(ports, lan))
        now = sample(engines=figures, nodes={LOCAL: node.replace(links=()), "spark2": node})
        shown = text(daemon, engines={"a": engine("a", nodes=(LOCAL, "spark2"))}, sample=now)
        return "on spark-1 + spark2  not by RDMA: enP7s7 of spark2 carries the tensors" in shown

    assert told(0.0, 30e6)
    assert not told(390e6, 30e6), "weights are copied beside"
    assert not told(0.0, 3000.0)
    assert not told(None, 30e6), "a driver without counters"
    assert not told(0.0, 30e6, decode=0.0)


def test_failures_notices_problems_and_old_figures_are_told(daemon: FakeDaemon) -> None:
    failure = Failure(code="out_of_memory", message="Out of memory.", hint="Take less.")
    told = text(
        daemon,
        at=BIRTH + 100,
        engines={"a": engine("a", EngineState.FAILED, failure=failure), "b": engine("b")},
        sample=sample(engines={"b": EngineSample(at=BIRTH + 60, values={Metric.DECODE: 1.0})}),
        notices=(Notice(level=Level.WARNING, code="x", text="A foreign container holds the GPU.", at=BIRTH),),
        problems=("x.yaml:1: wrong.",),
    )
    assert "          Out of memory. Take less." in told
    assert "(40s old)" in told
    assert "warning   A foreign container holds the GPU. (1m40s ago)" in told
    assert "profiles  1 with problems; see `sparkdash profiles check`" in told


def test_what_was_told_again_is_told_once(daemon: FakeDaemon) -> None:
    twice = [Notice(level=Level.ERROR, code="x", text="Its image is not here.", at=BIRTH + at) for at in (90, 80, 70)]
    other = Notice(level=Level.WARNING, code="y", text="A foreign container holds the GPU.", at=BIRTH)
    told = text(daemon, at=BIRTH + 100, notices=(*twice, other))
    assert told.count("Its image is not here.") == 1
    assert "Its image is not here. (10s ago)" in told
    assert "A foreign container holds the GPU." in told


def test_a_container_that_is_not_ours_is_told_with_what_it_takes(daemon: FakeDaemon) -> None:
    comfy = ForeignContainer(name="comfy", image="comfyui:1", gpu=True, ports=(18001,), bytes=12 * GIB)
    memory = Memory(total=121 * GIB, available=90 * GIB, free=80 * GIB, strangers=(comfy,))
    told = " ".join(text(daemon, sample=sample(memory=memory)).split())
    assert "others comfy (comfyui:1) has 12.0 GiB, a GPU, port 18001; not started by sparkdash, left alone" in told


def test_a_parked_profile_is_told_with_its_reason(daemon: FakeDaemon) -> None:
    failure = Failure(code="token_refused", message="The hub refused.", hint="Log in.")
    parked = {"a": Parked(since=BIRTH, failures=2, failure=failure)}
    told = " ".join(text(daemon, parked=parked).split())
    assert "parked a: The hub refused. Log in. Fix the cause, then `sparkdash status --release a`." in told
    told = text(daemon, parked=parked, engines={"a": engine("a", EngineState.FAILED, failure=failure)})
    assert told.count("The hub refused.") == 1


def test_watching_prints_every_change_until_the_daemon_goes(sparkdash: Run, daemon: FakeDaemon) -> None:
    def live() -> None:
        daemon.until_listeners(1)
        daemon.publish(Notice(level=Level.INFO, code="x", text="hello"))
        daemon.be_gone()

    thread = threading.Thread(target=live)
    thread.start()
    done = sparkdash("status", "--watch", "--json")
    thread.join()
    *states, error = done.out.split("\n", 2)
    assert [Snapshot.model_validate_json(state).seq for state in states] == [0, 1]
    assert '"code": "daemon_hung_up"' in error
    assert done.code == 7
    assert "The daemon went away." in done.err


def test_an_engine_that_served_and_failed_says_since_when_it_failed(sparkdash: Run, daemon: FakeDaemon) -> None:
    died = engine(
        "gpt-oss-120b", state=EngineState.FAILED, since=BIRTH + 187, ready_at=BIRTH + 108,
        failure=Failure(code="engine_crash", message="It died."),
    )  # fmt: skip
    daemon.set(at=BIRTH + 200, engines={"gpt-oss-120b": died})
    assert "failed  13s" in sparkdash("status").out
