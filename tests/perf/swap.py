"""Cost of a swap beyond the engine's own start and stop, phase by phase, with real podman.

    .venv/bin/python tests/perf/swap.py [--rounds 10] [--slow]

Two profiles of one tiny engine (up in a tenth of a second; with --slow it loads for a second) take turns under the real
supervisor. In the same run, and alternating with it, the same is done bare: `podman stop`, `podman rm`, `podman run`, ask every
10 ms until it answers, one short generation. The difference is what sparkdash adds: looking ahead, measuring, keeping the log,
waiting for memory, noticing that the engine is up. Seconds of wall time. The overhead is that of each swap over the bare one
beside it, the engine's own answers to the warm-up taken off on both sides; its median is held against the target. While it runs
somebody asks the gateway's event loop for a turn all the time; the longest wait is printed. Not part of the test suite.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
os.environ.setdefault("CONTAINERS_CONF", str(HERE.parent / "podman/containers.conf"))

from sparkdash.catalog import Catalog  # noqa: E402 - podman's settings come first
from sparkdash.domain.event import Fact, SwapChanged  # noqa: E402
from sparkdash.domain.profile import EngineKind, ModelRef, Mount, Profile  # noqa: E402
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase  # noqa: E402
from sparkdash.host.box import BoxReader  # noqa: E402
from sparkdash.host.podman.podman import Podman  # noqa: E402
from sparkdash.host.runtime import OneNode  # noqa: E402
from sparkdash.settings import Settings  # noqa: E402
from sparkdash.supervisor import Supervisor, Tools  # noqa: E402
from sparkdash.upstream import Upstream  # noqa: E402

IMAGE = "localhost/sparkdash-perf-hostfs:1"
ENGINE = HERE.parent / "faults/engine.py"
PORTS = (27000, 27099)
BARE = "sparkdash-perf-bare"
TARGET_S = 0.5


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--rounds", type=int, default=10)
    given.add_argument("--slow", action="store_true")
    options = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Containerfile"
        file.write_text("FROM scratch\nCOPY Containerfile /Containerfile\n")
        subprocess.run(["podman", "build", "--quiet", "--tag", IMAGE, folder], check=True, capture_output=True)
        asyncio.run(measure(options.rounds, "slow" if options.slow else "", Path(folder)))


async def measure(rounds: int, animal: str, folder: Path) -> None:
    swaps: list[Swap] = []

    def publish(fact: Fact) -> None:
        if isinstance(fact, SwapChanged) and fact.swap.ended_at is not None:
            swaps.append(fact.swap)

    profiles = [profile("a", animal), profile("b", animal)]
    async with Upstream() as upstream:
        supervisor = Supervisor(Tools(
            catalog=Catalog(profiles={p.name: p for p in profiles}, problems=()),
            runtime=Podman(), upstream=upstream, reader=(reader := BoxReader()), nodes=OneNode(reader), publish=publish, owner=f"perf-{os.getpid()}",
            settings=Settings(engine_ports=PORTS, cache_dir=folder / "cache", hf_home=folder / "hf", guard="off"),
        ))  # fmt: skip
        running = asyncio.create_task(supervisor.run())
        pulse = asyncio.create_task(longest_wait())
        bare: list[dict[str, float]] = []
        whole: list[float] = []
        try:
            await supervisor.adopted()
            await bare_start(upstream, animal)
            for number in range(rounds + 1):
                began = time.monotonic()
                await supervisor.use("ab"[number % 2], cause=SwapCause.USER)
                await supervisor.settled()
                whole.append(time.monotonic() - began)
                bare.append(await bare_stop() | await bare_start(upstream, animal))
        finally:
            await bare_stop()
            await supervisor.stop(None)
            running.cancel()
            pulse.cancel()
            with suppress(asyncio.CancelledError):
                await running
    failed = [swap.failure for swap in swaps if swap.outcome is not SwapOutcome.DONE and swap.target]
    assert not failed, failed
    show([swap for swap in swaps if swap.evict and swap.target], whole[1:], bare[1:], LONGEST[0])


def profile(name: str, animal: str) -> Profile:
    """A profile that tells no need, so that one leaves for the other."""
    base = Path(os.path.realpath(sys.executable)).parents[1]
    places = dict.fromkeys(("/usr", "/lib", "/lib64", "/bin", "/etc", str(base), str(ENGINE.parent)))
    return Profile(
        name=name,
        engine=EngineKind.VLLM,
        image=IMAGE,
        gpu=False,
        serves=(f"{name}-alias",),
        command=(os.path.realpath(sys.executable), "-SEs", str(ENGINE)),
        models={"target": ModelRef(path=str(ENGINE.parent))},
        mounts=tuple(Mount(source=place, target=place) for place in places),
        env={"FAKE_ENGINE": animal},
    )


async def podman(*words: str) -> float:
    began = time.monotonic()
    done = await asyncio.create_subprocess_exec("podman", *words, stdout=-3, stderr=-3)
    await done.wait()
    return time.monotonic() - began


async def bare_stop() -> dict[str, float]:
    return {"stop": await podman("stop", "-t", "30", BARE), "rm": await podman("rm", "-f", BARE)}


async def bare_start(upstream: Upstream, animal: str) -> dict[str, float]:
    """Run, until it answers, and one answer."""
    one, port = profile("bare", animal), PORTS[1] + 1
    mounts = [word for m in one.mounts for word in ("-v", f"{m.source}:{m.target}:ro")]
    flags = [
        "run",
        "-d",
        "--name",
        BARE,
        "--network",
        "host",
        "-e",
        f"FAKE_ENGINE={animal}",
        *mounts,
        "--entrypoint",
        one.command[0],
        IMAGE,
    ]
    ran = await podman(*flags, *one.command[1:], "--port", str(port))
    began = time.monotonic()
    while not await answers(upstream, port):  # noqa: ASYNC110 - an engine cannot tell
        await asyncio.sleep(0.01)
    up = time.monotonic()
    await upstream.generate(f"http://127.0.0.1:{port}/v1/chat/completions", "bare", timeout_s=10)
    return {"run": ran, "up": up - began, "generate": time.monotonic() - up}


async def answers(upstream: Upstream, port: int) -> bool:
    with suppress(Exception):
        return (await upstream.get(f"http://127.0.0.1:{port}/health", timeout_s=1)).status == 200
    return False


LONGEST = [0.0]


async def longest_wait() -> None:
    """How long the event loop keeps somebody waiting who wants a turn every 5 ms."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.005)
        LONGEST[0] = max(LONGEST[0], time.monotonic() - began - 0.005)


def show(swaps: list[Swap], whole: list[float], bare: list[dict[str, float]], longest: float) -> None:
    print(f"{len(swaps)} swaps, {len(bare)} bare ones; medians in seconds\n\nsparkdash")
    for phase in SwapPhase:
        times = [swap.stage_s[phase] for swap in swaps if phase in swap.stage_s]
        print(f"  {phase.value:<12}{statistics.median(times):7.3f}" if times else f"  {phase.value:<12}      -")
    ours = statistics.median(whole)
    print(f"  {'whole':<12}{ours:7.3f}\n\nbare podman")
    for step in bare[0]:
        print(f"  {step:<12}{statistics.median(each[step] for each in bare):7.3f}")
    theirs = [sum(each.values()) for each in bare]
    print(f"  {'whole':<12}{statistics.median(theirs):7.3f}\n")
    warm = zip(
        (swap.stage_s.get(SwapPhase.WARM, 0.0) for swap in swaps), (each["generate"] for each in bare), strict=True
    )
    added = [mine - other - (w - g) for mine, other, (w, g) in zip(whole, theirs, warm, strict=True)]
    print(
        f"overhead      {statistics.median(added):7.3f}   ({min(added):.3f} to {max(added):.3f}; target < {TARGET_S})"
    )
    print(f"event loop kept waiting at most {longest * 1000:.0f} ms")


if __name__ == "__main__":
    main()
