"""Real clients before profiles that fail to load: how often one prompt loads, when its user reads why, and what he reads.

    .venv/bin/python tests/clients/failing.py                      # all that take megabytes
    .venv/bin/python tests/clients/failing.py --only codex,cline --dies-s 1 --hold-s 60

Each client has a profile of its own, which dies after `--dies-s` seconds of its load, and is asked once for a stream. It passes when
the daemon's own list has one load for it, and its output has the reason within ten seconds of the load's end. Later than `--hold-s`
(3 s) the client has its 200 already, and reads the reason in its stream; earlier it gets the true status.
"""

import argparse
import asyncio
import datetime
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from asking import LOOK_S, Books, daemon, ended_by_home, prepared, started
from clients import CLIENTS, Act, Client, Place, chosen
from installing import installed

PROFILE = """\
profile: {name}
about: simulated
engine: sim
context: 65536
sim: {{load_s: {load_s}, fault: dies-loading, memory_gib: 0.1}}
memory: {{weights_gib: 0.1, kv_gib: 0, overhead_gib: 0, source: invented}}
"""
DIES_AT = 0.6
"""Share of the load, as the simulated engine has it."""
WORDS = "did not start"
"""How the reason begins, in every protocol."""
WORDS_S = 10.0
READ = 160
"""Characters of what is shown."""


@dataclass(frozen=True)
class Ending:
    """Outcome of one prompt."""

    loads: int
    posts: int
    words_s: float | None
    """From the end of the first load until its user could read the reason; None: he never could."""
    ended_s: float | None
    """Until the client's process ended; None: it did not."""
    read: str

    @property
    def passed(self) -> bool:
        """One load, and a clear word soon."""
        return self.loads == 1 and self.words_s is not None and self.words_s <= WORDS_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(client.name for client in CLIENTS if not client.reads))
    parser.add_argument("--dies-s", type=float, default=6.0)
    parser.add_argument(
        "--hold-s", type=float, default=3.0, help="hold_headers_s: a load that dies earlier has a true status"
    )
    parser.add_argument("--limit-s", type=float, default=150.0, help="for one client, to give up and end")
    args = parser.parse_args()
    wanted = chosen(args.only, only_real=False)
    programs = {client.name: installed(client) for client in wanted}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        models = {client.name: f"broken-{client.name}" for client in wanted}
        load_s = args.dies_s / DIES_AT
        profiles = {name: PROFILE.format(name=name, load_s=load_s) for name in models.values()}
        with daemon(root, profiles, hold_headers_s=args.hold_s) as served:
            books = Books(served, "")
            endings = {}
            for client in wanted:
                model, home, key = models[client.name], root / client.name, books.key(client.name)
                env = books.configure(client, home, key, model)
                place = Place(served.url, model, home, programs[client.name][0], root, "", key, env)
                prepared(client, place)
                endings[client.name] = asyncio.run(seen(client, place, books, args.limit_s))
                print(f"{client.name}: {endings[client.name]}", file=sys.stderr)
        ended_by_home(root)
    print(f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}, each before a load that dies after {args.dies_s:g} s\n")
    print(
        "| client | version | loads | posts | the reason after | ended after | its user reads |\n|---|---|---|---|---|---|---|"
    )
    for name, ending in endings.items():
        print(f"| {name} | {programs[name][1]} | {ending.loads} | {ending.posts} | {_seconds(ending.words_s)} "
              f"| {_seconds(ending.ended_s)} | {ending.read} |")  # fmt: skip
    return 0 if all(ending.passed for ending in endings.values()) else 1


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


async def seen(client: Client, place: Place, books: Books, limit_s: float) -> Ending:
    """One prompt, from its start until the client gives up, or is given up."""
    place.work.mkdir(exist_ok=True)
    said = place.home / "failing.txt"
    words_at = ended_at = None
    until = time.time() + limit_s
    with started(client, Act.STREAM, place, said) as process:
        while time.time() < until and ended_at is None:
            ended_at = time.time() if process.poll() is not None else None
            if words_at is None and WORDS in plain(said):
                words_at = time.time()
            await asyncio.sleep(LOOK_S)
    snapshot = await books.now()
    swaps = [swap for swap in snapshot.swaps if swap.target == place.model]
    rows = [row for row in (*snapshot.recent, *snapshot.requests.values()) if row.key == client.name]
    failed_at = min((swap.ended_at for swap in swaps if swap.ended_at), default=0.0)
    return Ending(
        len(swaps) + sum(swap.target == place.model for swap in snapshot.swaps_under_way),
        len(rows),
        None if words_at is None else words_at - failed_at,
        None if ended_at is None else ended_at - failed_at,
        excerpt(plain(said)),
    )


def plain(said: Path) -> str:
    """Output of a client, without its colours and with single spaces."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07", "", said.read_text(errors="replace"))
    return re.sub(r"[\s│┃|]+", " ", text)


def excerpt(text: str) -> str:
    """Where the reason stands in it, with a little of what is before; else its end."""
    at = text.rfind(WORDS)
    return (text[max(0, at - 60) :][:READ] if at >= 0 else text[-READ:]).strip()


if __name__ == "__main__":
    sys.exit(main())
