"""Real clients, headless, before the gateway: each installed from its registry, configured by `sparkdash connect` where there
is a recipe for it, and asked in four ways.

    .venv/bin/python tests/clients/run.py [--only llm,codex] [--load-s 1] [--profile FILE --runtime podman] [--install]

    --only llm,codex:stream+cancel   these clients; of codex these acts, which are stream, cancel, tools and whole
    --load-s 400                     a model that takes so long to come up, in real time; every client has to wait for it
    --launch                         each is started by `sparkdash launch` from an empty home, instead of `connect --write` before
    --profile FILE                   a profile of a real engine, instead of the simulated one; --runtime is what it is started with

wait, streaming   all of them at the same time, while their model loads; how long each waited, and whether the gateway saw streams
cancel            its process group gets SIGINT in the middle of a long stream: within two seconds of its end (--free-s) the
                  engine runs nothing, nothing is left in flight, and the books say that the client went; told is the
                  time from the signal until the engine was free
tools             it is asked for its note; the model calls the tool that it offers, and says what the tool returned
plain             it is asked again, after all that, for a whole answer (or a stream, where it knows nothing else)

What counts as passed: the client ends with status 0 unless it was interrupted, and each of its requests has ended well in the
gateway's own books, with an answer that the engine counted. Tools need the simulated engine, which does as its prompt
orders. Printed is a Markdown table, and what a client that failed said last.

The first run installs the clients into folders of their own in the user's cache (3.6 GB, a few minutes; those from npm bring
the Node that they run with; guidellm, which is left out unless it is named, 6 GB). The test suite has the two that are installed within seconds.
"""

import argparse
import asyncio
import datetime
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from asking import Books, Limits, asked, daemon, ended_by_home, prepared
from clients import CLIENTS, Act, Client, Place, chosen, launched
from installing import installed
from judging import Outcome, passed, table

SPEED = 10
"""Time scale of the simulated engine, its load included: some 400 tokens a second."""
PROFILE = """\
profile: tiny
about: simulated
engine: sim
context: 131072
sim: {{load_s: {load_s}, time_scale: {SPEED}, memory_gib: 0.1}}
memory: {{weights_gib: 0.1, kv_gib: 0, overhead_gib: 0, source: invented}}
"""
PATIENCE_S = 300
"""For an answer, once the model is up."""


def main() -> int:
    """All of them, and the table; 1 if one failed."""
    args = _parser().parse_args()
    wanted = chosen(args.only, only_real=args.profile is not None)
    if args.launch:
        wanted = [launched(client) for client in wanted]
    programs = {client.name: installed(client) for client in wanted}
    if args.install:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        shared = root / "shared"
        text = args.profile.read_text() if args.profile else PROFILE.format(load_s=args.load_s * SPEED, SPEED=SPEED)
        (model,) = re.findall(r"^profile: *(\S+)", text, re.MULTILINE)
        with ExitStack() as open_:
            shop = open_.enter_context(made_book(shared)) if any(client.reads for client in wanted) else ""
            served = open_.enter_context(daemon(root, {model: text}, runtime=args.runtime))
            books = Books(served, model)
            places = {}
            for client in wanted:
                key, home = books.key(client.name), root / client.name
                env = books.configure(client, home, key)
                places[client.name] = Place(served.url, model, home, programs[client.name][0], shared, shop, key, env)
                prepared(client, places[client.name])
            limits = Limits(args.load_s + PATIENCE_S, args.free_s)
            outcomes = asyncio.run(played(wanted, places, books, limits))
        ended_by_home(root)
    behind = (
        f"{args.profile.stem} ({args.runtime})" if args.profile else f"the simulated engine, {args.load_s:g} s to load"
    )
    print(f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}, before {behind}\n")
    print(table(wanted, {name: version for name, (_, version) in programs.items()}, outcomes))
    return 0 if passed(wanted, outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(client.name for client in CLIENTS if not client.large))
    parser.add_argument("--load-s", type=float, default=1.0)
    parser.add_argument(
        "--free-s", type=float, default=2.0, help="for the engine, once an interrupted client has ended"
    )
    parser.add_argument("--launch", action="store_true", help="start them by `sparkdash launch`, with nothing written")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--runtime", default="process")
    parser.add_argument("--install", action="store_true", help="and nothing more")
    return parser


@contextmanager
def made_book(shared: Path) -> Iterator[str]:
    import book  # a second of imports and tokens, for two clients

    shared.mkdir()
    book.write_book(shared)
    (shared / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with book.book_shop(shared) as port:
        yield f"http://127.0.0.1:{port}"


async def played(
    clients: Sequence[Client], places: Mapping[str, Place], books: Books, limits: Limits
) -> dict[str, dict[Act, Outcome]]:
    """Outcomes by name and act. Interrupts come one after another: what the engine still runs is then one client's."""
    found: dict[str, dict[Act, Outcome]] = {client.name: {} for client in clients}
    for act in Act:
        who = [client for client in clients if act in client.asks]
        groups = [[client] for client in who] if act is Act.CANCEL else [who]
        for some in filter(None, groups):
            print(f"{act}: {', '.join(client.name for client in some)}", file=sys.stderr)
            asks = (asked(client, act, places[client.name], books, limits) for client in some)
            outcomes = await asyncio.gather(*asks)
            rows = await books.ended()
            for client, outcome in zip(some, outcomes, strict=True):
                own = tuple(row for row in rows if row.key == client.name)
                found[client.name][act] = replace(outcome, rows=own)
    return found


if __name__ == "__main__":
    sys.exit(main())
