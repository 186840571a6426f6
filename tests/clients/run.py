"""Real clients, headless, before the gateway: each installed from its registry, configured by `sparkdash connect` where there
is a recipe for it, and asked once, all at the same time, while their model loads.

    .venv/bin/python tests/clients/run.py [--only llm,codex] [--load-s 1] [--profile FILE --runtime podman] [--install]

    --load-s 400     a model that takes so long to come up, in real time; every client has to wait for it
    --profile FILE   a profile of a real engine, instead of the simulated one; --runtime is what it is started with

What counts as passed: the client ends with status 0, and each of its requests has ended well in the gateway's own books, with
an answer that the engine counted. Printed is a Markdown table, and what a client that failed said last.

The first run installs the clients into folders of their own in the user's cache (1.5 GB, a few minutes; those from npm need Node
20 or newer; guidellm, which is left out unless it is named, 6 GB). The test suite has the two that are installed within seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
sys.path.insert(0, str(Path(__file__).parents[1] / "perf"))
import benchy
import ground

HERE = Path(__file__).parent

SPEED = 20
"""Of the simulated engine, its load included."""
PROFILE = """\
profile: tiny
about: simulated
engine: sim
context: 32768
sim: {{load_s: {load_s}, time_scale: {SPEED}, memory_gib: 0.1}}
memory: {{weights_gib: 0.1, kv_gib: 0, overhead_gib: 0, source: invented}}
"""
ASK = "Say something short."
PATIENCE_S = 300
"""For an answer, once the model is up."""


@dataclass(frozen=True)
class Place:
    """Where one client finds what it needs. `home` is its own, and empty but for what `sparkdash connect` wrote."""

    url: str
    """Of the gateway, without /v1."""
    model: str
    home: Path
    bin: Path
    """Where its program is."""
    shared: Path
    """A folder with a book and a tokenizer."""
    shop: str
    """The same, by HTTP."""
    key: str
    """Its own, by which the gateway knows its requests."""


Argv = Callable[[Place], list[str]]


@dataclass(frozen=True)
class Client:
    """One client: how it is installed, configured and asked."""

    name: str
    argv: Argv
    npm: bool = False
    recipe: bool = False
    large: bool = False
    """Is it asked only by name? It takes gigabytes."""
    package: str = ""
    """What it is called in its registry, if not by its name."""


def python(*lines: str) -> Argv:
    """A program that uses a library."""
    return lambda place: [f"{place.bin}/python", "-c", "\n".join(lines), f"{place.url}/v1", place.model, ASK]


LITELLM = python(
    "import os, sys; os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'",
    "import litellm",
    "base, model, ask = sys.argv[1:]",
    "for chunk in litellm.completion('hosted_vllm/' + model, [{'role': 'user', 'content': ask}], api_base=base,",
    "        api_key=os.environ['SPARKDASH_KEY'], stream=True, max_tokens=40):",
    "    print(chunk.choices[0].delta.content or '', end='')",
)
LANGCHAIN = python(
    "import os, sys; from langchain_openai import ChatOpenAI",
    "base, model, ask = sys.argv[1:]",
    "for responses in (False, True):",
    "    chat = ChatOpenAI(base_url=base, model=model, api_key=os.environ['SPARKDASH_KEY'], max_tokens=40,",
    "        use_responses_api=responses)",
    "    print(''.join(str(chunk.text) for chunk in chat.stream(ask)))",
)
NODE = """
const OpenAI = require('openai');
const [base, model, ask] = process.argv.slice(1);
(async () => {
  const client = new OpenAI({ baseURL: base, apiKey: process.env.SPARKDASH_KEY });
  const chat = client.chat.completions.stream({ model, messages: [{ role: 'user', content: ask }], max_tokens: 40 });
  console.log((await chat.finalChatCompletion()).choices[0].message.content);
  const response = client.responses.stream({ model, input: ask, max_output_tokens: 40 });
  console.log((await response.finalResponse()).output_text);
})();
"""
AIDER = (
    "--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--no-auto-commits", "--analytics-disable",
)  # fmt: skip
BENCHY = (
    "--pp",
    "64",
    "--tg",
    "16",
    "--runs",
    "2",
    "--skip-coherence",
    "--latency-mode",
    "none",
    "--exit-on-first-fail",
)
CLIENTS = (
    Client("llm", lambda at: [f"{at.bin}/llm", "-m", f"sparkdash-{at.model}", ASK], recipe=True),
    Client("aider", lambda at: [f"{at.bin}/aider", *AIDER, "--message", ASK], recipe=True, package="aider-chat"),
    Client("litellm", LITELLM),
    Client("langchain", LANGCHAIN, package="langchain-openai"),
    Client(
        "llama-benchy",
        lambda at: [
            f"{at.bin}/llama-benchy", "--base-url", f"{at.url}/v1", "--model", at.model, "--tokenizer", str(at.shared),
            "--book-url", f"{at.shop}/book.txt", "--api-key", at.key, *BENCHY,
        ],
    ),
    Client(
        "guidellm",
        lambda at: [
            f"{at.bin}/guidellm", "run", "--backend", f"kind=openai_http,target={at.url},model={at.model},api_key={at.key}",
            "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=3", "--disable-progress",
            "--tokenizer", f"kind=huggingface_auto,model={at.shared}",
            "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
        ],
        large=True,
    ),
    Client(
        "openai", lambda at: ["node", "-e", NODE, f"{at.url}/v1", at.model, ASK], npm=True
    ),
    Client("opencode", lambda at: [f"{at.bin}/opencode", "run", ASK], npm=True, recipe=True, package="opencode-ai"),
    Client(
        "codex",
        lambda at: [f"{at.bin}/codex", "exec", "--profile", "sparkdash", "--skip-git-repo-check", ASK],
        npm=True,
        recipe=True,
        package="@openai/codex",
    ),
)  # fmt: skip


# --- installing -------------------------------------------------------------------------------------------------


def installed(client: Client) -> tuple[Path, str]:
    """(where its program is, its version)."""
    if client.npm:
        home = from_npm()
        folder = home / "node_modules" / (client.package or client.name)
        version = json.loads((folder / "package.json").read_text())["version"]
        return home / "node_modules" / ".bin", version
    wanted = HERE / f"{client.name}.txt"
    (version,) = re.findall(rf"^{client.package or client.name}==(\S+)", wanted.read_text(), re.MULTILINE)
    return ground.environment(wanted) / "venv" / "bin", version


def from_npm() -> Path:
    """A folder with `node_modules`."""
    wanted = HERE / "package.json"
    key = hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparkdash-tests" / f"clients-npm-{key}"
    if not (home / ".done").exists():
        print(f"Installing {wanted.name} into {home} …", file=sys.stderr)
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, home)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=home, check=True)
        (home / ".done").touch()
    return home


# --- asking -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of one client."""

    status: int | None
    """Of its process; None: it did not end in time."""
    took_s: float
    output: str


class Books:
    """A daemon's command line, for keys, configurations and the books."""

    def __init__(self, root: Path, url: str, model: str) -> None:
        self._env = {**os.environ, **ground.folders(root), "NO_COLOR": "1"}
        self._url, self._model = url, model

    def _sparkdash(self, *words: str, **env: str) -> str:
        argv = [sys.executable, "-m", "sparkdash", *words]
        done = subprocess.run(argv, env=self._env | env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"sparkdash {' '.join(words)}: {done.stderr}")
        return done.stdout

    def key(self, name: str) -> str:
        """A key of that name."""
        return self._sparkdash("keys", "add", name).strip()

    def configure(self, client: Client, home: Path, key: str) -> None:
        """What `sparkdash connect` writes."""
        home.mkdir(exist_ok=True)
        if client.recipe:
            where = ("--model", self._model, "--url", self._url)
            self._sparkdash("connect", client.name, *where, "--write", "--yes", HOME=str(home), SPARKDASH_KEY=key)

    def requests(self) -> list[dict[str, object]]:
        """Those that ended, newest first."""
        found: list[dict[str, object]] = json.loads(self._sparkdash("requests", "--all", "--json"))
        return found


async def asked(client: Client, place: Place, limit_s: float) -> Outcome:
    """Its answer, or what it said instead."""
    begun = time.monotonic()
    work = place.home / "work"
    work.mkdir(exist_ok=True)
    env = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")},
        "HOME": str(place.home), "SPARKDASH_KEY": place.key, "OPENAI_API_KEY": place.key, "NO_COLOR": "1",
        "HF_HUB_OFFLINE": "1", "NODE_PATH": str(place.bin.parent),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *client.argv(place),
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), limit_s)
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
        return Outcome(None, time.monotonic() - begun, output.decode(errors="replace"))
    return Outcome(process.returncode, time.monotonic() - begun, output.decode(errors="replace"))


def main() -> int:
    """All of them at once, and the table; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(client.name for client in CLIENTS if not client.large))
    parser.add_argument("--load-s", type=float, default=1.0)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--runtime", default="process")
    parser.add_argument("--install", action="store_true", help="and nothing more")
    args = parser.parse_args()
    wanted = [client for client in CLIENTS if client.name in args.only.split(",")]
    programs = {client: installed(client) for client in wanted}
    if args.install:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "shared").mkdir()
        benchy.write_book(root / "shared")
        (root / "shared" / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
        text = args.profile.read_text() if args.profile else PROFILE.format(load_s=args.load_s * SPEED, SPEED=SPEED)
        (model,) = re.findall(r"^profile: *(\S+)", text, re.MULTILINE)
        settings = {"runtime": args.runtime, "reserve_gib": 0}
        with benchy.book_shop(root / "shared") as shop, ground.daemon(root, {model: text}, **settings) as url:
            books = Books(root, url, model)
            places = {}
            for client in wanted:
                key, home = books.key(client.name), root / client.name
                books.configure(client, home, key)
                shared, by_http = root / "shared", f"http://127.0.0.1:{shop}"
                places[client] = Place(url, model, home, programs[client][0], shared, by_http, key)
            outcomes = asyncio.run(all_of(places, args.load_s + PATIENCE_S))
            rows = books.requests()
    behind = (
        f"{args.profile.stem} ({args.runtime})" if args.profile else f"the simulated engine, {args.load_s:g} s to load"
    )
    print(f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}, before {behind}\n")
    return told(wanted, programs, outcomes, rows)


async def all_of(places: dict[Client, Place], limit_s: float) -> dict[Client, Outcome]:
    """What became of each."""
    found = await asyncio.gather(*(asked(client, place, limit_s) for client, place in places.items()))
    return dict(zip(places, found, strict=True))


def told(
    clients: list[Client],
    programs: dict[Client, tuple[Path, str]],
    outcomes: dict[Client, Outcome],
    rows: list[dict[str, object]],
) -> int:
    """The table, and what those that failed said."""
    print("| client | version | requests | answered | took | |\n|---|---|---:|---:|---:|---|")
    failed = []
    for client in clients:
        outcome = outcomes[client]
        own = [row for row in rows if row["key"] == client.name]
        good = [row for row in own if row["state"] == "done" and row["completion_tokens"]]
        passed = outcome.status == 0 and bool(outcome.output.strip()) and bool(own) and own == good
        failed += [] if passed else [client]
        verdict = "passed" if passed else f"failed, status {outcome.status}"
        version = programs[client][1]
        print(f"| {client.name} | {version} | {len(own)} | {len(good)} | {outcome.took_s:.0f} s | {verdict} |")
    for client in failed:
        print(f"\n{client.name} said last:\n{outcomes[client].output[-2000:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
