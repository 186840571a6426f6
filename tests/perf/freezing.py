"""Mixed traffic before simulated engines of which one is made to hang every so often: `soak.py --freeze-every MINUTES`.

Every request must be answered whole, or be told a reason, by a status or in its stream; none may wait for ever. By turns an
engine is stopped by SIGSTOP, hangs with its kernel, spins, admits nobody, or stalls until its clients have left. Between two
of them an engine compiles for ten minutes, and delta prefills for twenty at a time: neither may be touched.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import psutil
from account import HEALTHY, Account, Strike, note
from relays import free_port
from told import GONE, LEFT, WHOLE, ask

STUCK = ("sigstop", "frozen-core", "livelock", "waiting-only", "stalls-until-left")
COMPILE_S = 600.0
"""Of a first prompt of a `jit-first` engine."""
LOOK_S = 1.0
PATIENCE_S = 1800.0
"""Longer than any wait that the daemon promises an end for."""
WEIGHTS = {"alpha": 10, "beta": 10, "gamma": 0.03}


def run(args: Namespace) -> int:
    """Drive it all; 1 when anything is wrong."""
    account = Account()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        port = free_port()
        argv = [sys.executable, str(Path(__file__).parent / "simulated.py"), f"{folder}/d", str(port)]
        with Path(f"{folder}/daemon.log").open("wb") as log:
            daemon = subprocess.Popen([*argv, str(args.pace), str(args.hurry)], stdout=log, stderr=log)
        try:
            asyncio.run(drive(f"http://127.0.0.1:{port}", daemon.pid, account, args))
        finally:
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(60)
            daemon.kill()
            if args.keep_log:
                Path(args.keep_log).write_bytes(Path(f"{folder}/daemon.log").read_bytes())
    wrong = [f"WRONG: {reason}" for reason in account.wrong()]
    sys.stdout.write("\n".join([account.text(), *wrong, ""]))
    return 1 if wrong else 0


async def drive(url: str, pid: int, account: Account, args: Namespace) -> None:
    """Traffic, strikes and looks for as long as was asked; then until every request is over."""
    end = time.monotonic() + args.minutes * 60
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits(max_connections=None)) as http:
        await ready(http)
        watching = asyncio.create_task(watch(http, account))
        striking = asyncio.create_task(strike_often(http, account, args))
        sizes = [psutil.Process(pid).memory_info().rss]
        telling = asyncio.create_task(tell_often(account, pid, sizes))
        under_way: set[asyncio.Task[None]] = {asyncio.create_task(prefills(http, account, end, args))}
        rng = random.Random(args.seed)
        while time.monotonic() < end:
            task = asyncio.create_task(one(http, account, rng, args))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            await asyncio.sleep(rng.expovariate(args.rate))
        striking.cancel()
        sys.stderr.write("no more requests; waiting for those under way\n")
        await asyncio.gather(*under_way)
        await until_repaired(account, PATIENCE_S)
        for task in (watching, telling):
            task.cancel()
        await asyncio.gather(striking, watching, telling, return_exceptions=True)
    sys.stdout.write(f"daemon: {sizes[0] >> 20} MiB at first, {sizes[-1] >> 20} MiB at the end\n")


async def ready(http: httpx.AsyncClient) -> None:
    """Return once the daemon answers."""
    for _ in range(600):
        with suppress(httpx.HTTPError):
            await http.get("/health")
            return
        await asyncio.sleep(0.1)
    raise SystemExit("The daemon does not answer.")


async def one(http: httpx.AsyncClient, account: Account, rng: random.Random, args: Namespace) -> None:
    """One request of a random kind, to its end."""
    profile = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    tokens = 300 if rng.random() < 0.1 else rng.randint(4, 60)
    leaves = bool(args.leaving) and rng.randrange(args.leaving) == 0
    await counted(http, account, profile, rng, tokens, leaves=leaves)


async def counted(
    http: httpx.AsyncClient, account: Account, profile: str, rng: random.Random, tokens: int, *, leaves: bool = False
) -> None:
    account.sent += 1
    begun = time.time()
    try:
        async with asyncio.timeout(PATIENCE_S):
            end = await ask(http, profile, rng, tokens, leaves=leaves)
    except TimeoutError:
        end = GONE
    took = time.time() - begun
    if end == WHOLE and any(_held(incident, profile, begun, begun + took) for incident in account.incidents.values()):
        end = f"{WHOLE} after a repair"
    account.ends[end] += 1
    if end != LEFT:
        account.longest_s = max(account.longest_s, took)


def _held(incident: dict[str, Any], profile: str, begun: float, ended: float) -> bool:
    """Was a request of that time held by the engine that was stuck?"""
    return bool(incident["profile"] == profile and begun < incident["named_at"] < ended)


async def prefills(http: httpx.AsyncClient, account: Account, end: float, args: Namespace) -> None:
    """One long prefill after another."""
    rng = random.Random(args.seed + 1)
    while time.monotonic() < end:
        await counted(http, account, "delta", rng, 8)


async def strike_often(http: httpx.AsyncClient, account: Account, args: Namespace) -> None:
    """A stuck engine per period, and in the middle between two a healthy one that looks like one."""
    period = args.freeze_every * 60
    stuck, profiles, number = cycle(STUCK), cycle(("alpha", "beta", "beta", "alpha")), 0
    due = time.monotonic()
    compiles = COMPILE_S / args.pace < period / 3
    while True:
        due += period / 2
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        number += 1
        fault, profile = (next(stuck) if number % 2 else HEALTHY), next(profiles)
        if fault == HEALTHY and not compiles:  # it would go on into the next fault
            continue
        await strike(http, account, profile, fault, period / 2)


async def strike(http: httpx.AsyncClient, account: Account, profile: str, fault: str, within_s: float) -> None:
    """Freeze the engine, as soon as it serves and nothing is wrong with it."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        engine = (await state(http))["engines"].get(profile) or {}
        before = [s for s in account.strikes if s.profile == profile and s.fault != HEALTHY]
        well = not before or before[-1].is_over
        if engine.get("state") == "ready" and engine.get("in_flight") and well:
            account.strikes.append(Strike(time.time(), profile, fault, engine["ready_at"]))
            await begin(engine["url"], fault)
            return
        await asyncio.sleep(LOOK_S)
    account.late += 1
    sys.stderr.write(f"{profile} is not there to be struck with {fault}\n")


async def begin(url: str, fault: str) -> None:
    """The engine at `url` hangs from now on."""
    async with httpx.AsyncClient(base_url=url, timeout=10) as engine:
        if fault == "sigstop":
            page = (await engine.get("/metrics")).text
            os.kill(int(page.split('sparkdash_sim_info{pid="')[1].split('"')[0]), signal.SIGSTOP)
        else:
            await engine.post("/sim/fault", json={"fault": fault, "after_s": 0})


async def state(http: httpx.AsyncClient) -> dict[str, Any]:
    """The daemon's snapshot."""
    return dict((await http.get("/api/state")).json())


async def watch(http: httpx.AsyncClient, account: Account) -> None:
    """Note memory and incidents."""
    while True:
        with suppress(httpx.HTTPError):
            seen = await state(http)
            note(account, seen)
        await asyncio.sleep(LOOK_S)


async def until_repaired(account: Account, within_s: float) -> None:
    """Return once no incident is open."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit and any(i["ended_at"] is None for i in account.incidents.values()):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


async def tell_often(account: Account, pid: int, sizes: list[int]) -> None:
    """The account so far, once a minute."""
    while True:
        await asyncio.sleep(60)
        sizes.append(psutil.Process(pid).memory_info().rss)
        sys.stderr.write(
            f"{account.text()}\n{account.sent - account.ends.total()} under way\ndaemon: {sizes[-1] >> 20} MiB\n\n"
        )
