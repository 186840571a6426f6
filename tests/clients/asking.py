"""Clients as processes before a daemon, and what of them stands in its books."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from clients import NOTE, Act, Client, Place
from judging import Outcome

sys.path.append(str(Path(__file__).parents[1] / "shared"))
import programs
from daemons import Daemon, own_folder_variables

from sparkdash.client.address import at_socket
from sparkdash.client.client import AsyncClient
from sparkdash.connect.recipe import MASK
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Snapshot

LOOK_S = 0.02
"""Between looks at books and engine."""
BEGIN_S = 300.0
"""For a client to have its stream under way."""
END_S = 30.0
"""For a client that was interrupted, and for the books to be closed."""


@contextlib.contextmanager
def daemon(root: Path, profiles: Mapping[str, str], *, runtime: str = "process", **settings: Any) -> Iterator[Daemon]:
    """Serve these profiles (name: YAML) in folders of its own under `root`."""
    made = Daemon(root, runtime=runtime, **{"reserve_gib": 0, **settings})
    for name, text in profiles.items():
        made.write(name, text)
    made.start()
    try:
        yield made
    finally:
        made.sparkdash("stop", "--all")  # by its socket: its port asks for a key by now
        made.end(engines=False)


class Books:
    """Daemon of a drill: keys and configurations by its command line, records by its socket."""

    def __init__(self, daemon: Daemon, model: str) -> None:
        self._daemon, self._model = daemon, model
        self._socket = daemon.root / "runtime" / "daemon.sock"
        self._read: set[str] = set()

    def _sparkdash(self, *words: str, **env: str) -> str:
        done = programs.run(["-m", "sparkdash", *words], env=self._daemon.env | env, text=True)
        if done.returncode:
            raise SystemExit(f"sparkdash {' '.join(words)}: {done.stderr}")
        return str(done.stdout)

    def _client(self) -> AsyncClient:
        client = AsyncClient(self._daemon.url)
        client.address = at_socket(self._socket)
        return client

    def key(self, name: str) -> str:
        return self._sparkdash("keys", "add", name).strip()

    def configure(self, client: Client, home: Path, key: str, model: str | None = None) -> dict[str, str]:
        """Have `sparkdash connect` write the client's files; return the variables that its process needs."""
        home.mkdir(exist_ok=True)
        if client.launched:
            return own_folder_variables(self._daemon.root) | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        if not client.recipe:
            return {}
        env, where = (
            {"HOME": str(home), "SPARKDASH_KEY": key},
            ("--model", model or self._model, "--url", self._daemon.url),
        )
        told = json.loads(self._sparkdash("connect", client.name, *where, "--json", **env))
        if told["files"]:
            self._sparkdash("connect", client.name, *where, "--write", "--yes", **env)
        return {name: key if value == MASK else value for name, value in told["env"].items()}

    async def now(self) -> Snapshot:
        async with self._client() as client:
            return await client.state()

    async def until(self, holds: Callable[[Snapshot], bool], limit_s: float) -> Snapshot | None:
        """Return the daemon's answer once that holds; None when it never does."""
        async with self._client() as client:
            until = time.monotonic() + limit_s
            while time.monotonic() < until:
                snapshot = await client.state()
                if holds(snapshot):
                    return snapshot
                await asyncio.sleep(LOOK_S)
        return None

    async def ended(self) -> list[Request]:
        """The requests that ended since the last call, once none is under way; one that stays so is among them."""
        snapshot = await self.until(lambda world: not world.requests, END_S) or await self.now()
        rows = [row for row in (*snapshot.requests.values(), *snapshot.recent) if row.id not in self._read]
        self._read |= {row.id for row in rows}
        return rows

    async def freed(self) -> float:
        """Seconds until no engine runs anything, by its own metrics."""
        since = time.monotonic()
        pages = [f"{engine.url}/metrics" for engine in (await self.now()).engines.values() if engine.url]
        async with httpx.AsyncClient(verify=False, timeout=60) as http:
            while any([_running((await http.get(page)).text) for page in pages]):  # noqa: ASYNC110 - another process's figure
                await asyncio.sleep(LOOK_S)
        return time.monotonic() - since


def _running(metrics: str) -> float:
    names = ("vllm:num_requests_running", "llamacpp:requests_processing")
    (line,) = [line for line in metrics.splitlines() if line.startswith(names)]
    return float(line.split()[-1])


def prepared(client: Client, place: Place) -> None:
    """Run what configures a client by its own command line."""
    if client.before is not None:
        place.work.mkdir(exist_ok=True)
        env = _environment(client, place)
        subprocess.run(client.before(place), cwd=place.work, env=env, capture_output=True, timeout=BEGIN_S, check=True)


def _environment(client: Client, place: Place) -> dict[str, str]:
    """Put the client's own programs first: those from npm want the Node that is installed with them."""
    return {
        **{name: value for name, value in os.environ.items() if name in ("LANG", "TMPDIR")},
        "PATH": f"{place.bin}:{os.environ['PATH']}", "HOME": str(place.home), "SPARKDASH_KEY": place.key,
        **({} if client.recipe else {"OPENAI_API_KEY": place.key}), "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "NODE_PATH": str(place.bin.parent),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", **client.env, **place.env,
    }  # fmt: skip


@contextlib.contextmanager
def started(client: Client, act: Act, place: Place, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the client in a group of its own; nothing of the group outlives the block."""
    argv, env = client.asks[act](place), _environment(client, place)
    with said.open("wb") as output:
        process = subprocess.Popen(
            argv, cwd=place.work, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended_by_home(root: Path) -> None:
    """End what clients left behind in sessions of their own (Cline a hub): processes whose home is under `root`."""
    for process in psutil.process_iter(["environ"]):
        if ((process.info["environ"] or {}).get("HOME") or "").startswith(f"{root}/"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    answer_s: float
    free_s: float
    """From the end of a client that was interrupted until the engine runs nothing."""


async def asked(client: Client, act: Act, place: Place, books: Books, limits: Limits) -> Outcome:
    """Return the outcome; its rows are for the caller to look up, who may have asked several."""
    begun, interrupted_at, freed_s = time.monotonic(), None, None
    place.work.mkdir(exist_ok=True)
    note = f"the-word-is-{secrets.token_hex(4)}"
    (place.work / NOTE).write_text(f"{note}\n")
    said = place.home / f"{act}.txt"
    with started(client, act, place, said) as process:
        if act is Act.CANCEL and await books.until(lambda world: _under_way(client, world), BEGIN_S):
            interrupted_at = time.time()
            os.killpg(process.pid, signal.SIGINT)
            freeing = asyncio.create_task(books.freed())
            status = await _end(process, END_S)
            with contextlib.suppress(TimeoutError):
                freed_s = await asyncio.wait_for(freeing, limits.free_s)
        else:
            status = await _end(process, limits.answer_s)
    took_s, output = time.monotonic() - begun, said.read_text(errors="replace")
    return Outcome(status, took_s, output, note=note, interrupted_at=interrupted_at, freed_s=freed_s)


def _under_way(client: Client, world: Snapshot) -> bool:
    rows = [row for row in world.requests.values() if row.key == client.name]
    return any(row.state is RequestState.STREAMING for row in rows)


async def _end(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    try:
        return await asyncio.to_thread(process.wait, limit_s)
    except subprocess.TimeoutExpired:
        return None
