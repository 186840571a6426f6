"""Mixed traffic before simulated engines of which one is made to hang every so often: `soak.py --freeze-every MINUTES`.

Every request must be answered whole, or be told a reason, by a status or in its stream; none may wait for ever. By turns an
engine is stopped by SIGSTOP, hangs with its kernel, spins, admits nobody, or stalls until its clients have left. Between two
of them an engine compiles for ten minutes, and delta prefills for twenty at a time: neither may be touched.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import psutil
from relays import free_port

WHOLE, LEFT, GONE = "answered whole", "left by its client", "WRONG no end"


@dataclass(frozen=True)
class Protocol:
    """How one asks, and what the last word of a whole stream is."""

    path: str
    asks: str
    limit: str
    last: str


PROTOCOLS = (
    Protocol("/v1/chat/completions", "messages", "max_tokens", "[DONE]"),
    Protocol("/v1/completions", "prompt", "max_tokens", "[DONE]"),
    Protocol("/v1/messages", "messages", "max_tokens", "message_stop"),
    Protocol("/v1/responses", "input", "max_output_tokens", "response.completed"),
)


def is_wrong(end: str) -> bool:
    return "WRONG" in end


async def ask(http: httpx.AsyncClient, profile: str, rng: random.Random, tokens: int, *, leaves: bool) -> str:
    protocol, stream = rng.choice(PROTOCOLS), leaves or rng.random() < 0.6
    text = f"{rng.random()} {'word ' * rng.choice((3, 30, 300))}"
    given: Any = text if protocol.asks != "messages" else [{"role": "user", "content": text}]
    body = {"model": profile, protocol.asks: given, protocol.limit: tokens, "stream": stream, "ignore_eos": True}
    try:
        async with http.stream("POST", protocol.path, json=body) as reply:
            if reply.status_code != 200:
                return _refused(reply.status_code, await reply.aread())
            if not stream:
                return _whole(await reply.aread())
            return await _streamed(reply.aiter_lines(), protocol.last, leaves=leaves)
    except httpx.HTTPError as error:
        return f"WRONG {type(error).__name__}: {error}"


async def _streamed(lines: AsyncIterator[str], last: str, *, leaves: bool) -> str:
    ended = False
    async for line in lines:
        if not line.startswith("data: "):
            continue
        if leaves:
            return LEFT
        data = line[6:]
        if data == "[DONE]":
            ended = ended or last == data
            continue
        event = json.loads(data)
        if error := event.get("error") or (event.get("response") or {}).get("error"):
            return f"told in its stream: {_code(error)}"
        if event.get("type") == "error":
            return f"told in its stream: {_code(event)}"
        ended = ended or event.get("type") == last
    return WHOLE if ended else f"WRONG a stream without an end ({last})"


def _whole(body: bytes) -> str:
    answer = json.loads(body)
    if error := answer.get("error"):
        return f"told in its answer: {_code(error)}"
    return WHOLE


def _refused(status: int, body: bytes) -> str:
    try:
        return f"told by status {status}: {_code(json.loads(body)['error'])}"
    except (ValueError, KeyError, TypeError):
        return f"WRONG status {status} without a reason: {body[:100]!r}"


def _code(error: dict[str, Any]) -> str:
    if not error.get("message"):
        return "WRONG without a message"
    return str(error.get("code") or error.get("type"))


GIB = 2**30
HEALTHY = "jit-first"
"""The fault that looks like a stuck engine and is none."""


@dataclass
class Strike:
    """One engine that was made to hang, and what the daemon made of it."""

    at: float
    profile: str
    fault: str
    ready_at: float = 0.0
    """Of the engine that was struck: another one has another."""
    left: bool = False
    """The engine was gone before it was named, for another profile's sake."""
    incident: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        return self.left or (self.incident is not None and self.incident["ended_at"] is not None)

    def text(self, begun: float) -> str:
        head = f"{(self.at - begun) / 60:6.1f} min  {self.profile:<6}{self.fault:<18}"
        seen = self.incident
        if seen is None:
            return f"{head}{'gone before it was named' if self.left else 'not named'}"
        named = f"named {seen['named_at'] - self.at:.0f} s after it began"
        if seen["ended_at"] is None:
            return f"{head}{named}, not ended"
        steps = " > ".join(step["step"] for step in seen["steps"])
        return f"{head}{named}, {seen['end']} after {seen['ended_at'] - self.at:.0f} s ({steps})"


@dataclass
class Account:
    """What came of everything."""

    begun: float = field(default_factory=time.time)
    sent: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    strikes: list[Strike] = field(default_factory=list)
    incidents: dict[str, dict[str, Any]] = field(default_factory=dict)
    lowest: float = float("inf")
    """GiB available on the simulated box."""
    mean_repair: dict[str, Any] | None = None
    late: int = 0
    """Strikes that found no engine to strike."""

    def text(self) -> str:
        minutes = (time.time() - self.begun) / 60
        lines = [
            f"{minutes:.0f} minutes: {self.sent} requests sent, {self.ends.total()} over; longest {self.longest_s:.0f} s"
        ]
        lines += [f"  {count:7} {end}" for end, count in sorted(self.ends.items())]
        lines += [strike.text(self.begun) for strike in self.strikes]
        lines.append(f"memory of the simulated box: never under {self.lowest:.1f} GiB available")
        if self.mean_repair:
            lines.append(f"mean time to repair: {self.mean_repair['mean_s']:.0f} s over {self.mean_repair['n']}")
        return "\n".join(lines)

    def wrong(self) -> Iterator[str]:
        for end, count in self.ends.items():
            if is_wrong(end):
                yield f"{count} x {end}"
        if self.sent > self.ends.total():
            yield f"{self.sent - self.ends.total()} requests without an end"
        meant = {strike.incident["id"] for strike in self.strikes if strike.incident}
        for id_, incident in self.incidents.items():
            if id_ not in meant:
                yield f"{incident['profile']} was touched though nobody froze it: {incident['why']}"
        for strike in self.strikes:
            if strike.fault != HEALTHY and not strike.is_over:
                yield f"{strike.profile} with {strike.fault} was not repaired"


def note(account: Account, seen: dict[str, Any]) -> None:
    """Take what the daemon's snapshot says into the account."""
    memory = (seen.get("sample") or {}).get("memory") or {}
    account.lowest = min(account.lowest, memory.get("available", float("inf")) / GIB)
    account.mean_repair = seen.get("repairs", {}).get("every")
    for incident in seen.get("incidents", ()):
        account.incidents[incident["id"]] = incident
    for strike in account.strikes:
        engine = seen["engines"].get(strike.profile) or {}
        strike.left |= strike.incident is None and engine.get("ready_at") != strike.ready_at
    for found in sorted(account.incidents.values(), key=lambda incident: incident["named_at"]):
        before = [s for s in account.strikes if s.profile == found["profile"] and s.at <= found["named_at"]]
        if before and before[-1].fault != HEALTHY and before[-1].incident in (None, *_same(account, found)):
            before[-1].incident, before[-1].left = found, False


def _same(account: Account, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (s.incident for s in account.strikes if s.incident and s.incident["id"] == found["id"])


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
    for _ in range(600):
        with suppress(httpx.HTTPError):
            await http.get("/health")
            return
        await asyncio.sleep(0.1)
    raise SystemExit("The daemon does not answer.")


async def one(http: httpx.AsyncClient, account: Account, rng: random.Random, args: Namespace) -> None:
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
    async with httpx.AsyncClient(base_url=url, timeout=10) as engine:
        if fault == "sigstop":
            page = (await engine.get("/metrics")).text
            os.kill(int(page.split('sparkdash_sim_info{pid="')[1].split('"')[0]), signal.SIGSTOP)
        else:
            await engine.post("/sim/fault", json={"fault": fault, "after_s": 0})


async def state(http: httpx.AsyncClient) -> dict[str, Any]:
    return dict((await http.get("/api/state")).json())


async def watch(http: httpx.AsyncClient, account: Account) -> None:
    while True:
        with suppress(httpx.HTTPError):
            seen = await state(http)
            note(account, seen)
        await asyncio.sleep(LOOK_S)


async def until_repaired(account: Account, within_s: float) -> None:
    limit = time.monotonic() + within_s
    while time.monotonic() < limit and any(i["ended_at"] is None for i in account.incidents.values()):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)


async def tell_often(account: Account, pid: int, sizes: list[int]) -> None:
    while True:
        await asyncio.sleep(60)
        sizes.append(psutil.Process(pid).memory_info().rss)
        sys.stderr.write(
            f"{account.text()}\n{account.sent - account.ends.total()} under way\ndaemon: {sizes[-1] >> 20} MiB\n\n"
        )
