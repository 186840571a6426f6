"""`sparkdash bench verify`: another program measures the same engine, and its figures stand beside ours.

Owns: finding and running that program, and the text that it cuts prompts from. Must not know: its command line, its
results (report/peer_tools.py), how we measure.
Rule: a program runs only when it was named, and it fetches nothing: its text comes from here, and tokenizers come from
this box unless `--tokenizer` names another one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output.screen import make_console, print_json, print_note, terminal_width
from sparkdash.cli.parameters import AsJson, Yes, complete_profile

if TYPE_CHECKING:
    from sparkdash.bench.report.peer_table import PeerComparison
    from sparkdash.bench.report.peer_tools import Figures, PeerRequest, PeerTool
    from sparkdash.bench.results import Results
    from sparkdash.bench.run import CellKey

BOOK_WORDS = 60_000
"""Long enough that two prompts hardly begin at one place."""
CELL_S = 3600.0
"""Longest time of one cell."""
VERSION_S = 60.0
FAILED_WORDS = 400
"""Characters kept of a failed program's last words."""


class PeerName(StrEnum):
    """Programs that can verify, repeated here so that --help does not load the bench."""

    LLAMA_BENCHY = "llama-benchy"
    GUIDELLM = "guidellm"
    VLLM = "vllm"


def verify(
    profile: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="A profile's name.", autocompletion=complete_profile)
    ] = None,
    peer: Annotated[PeerName, typer.Option("--with", help="The program to verify with.")] = PeerName.LLAMA_BENCHY,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="A server that already runs.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="The server's model, if it serves several.")] = None,
    program: Annotated[str | None, typer.Option("--program", help="The program's file, if it is not in PATH.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Folder or hub name for the program; default: the model's own.")
    ] = None,
    suite: Annotated[str, typer.Option("--suite", "-s", metavar="SUITE", help="Cells to measure.")] = "verify",
    reps: Annotated[
        int | None, typer.Option("--reps", min=1, help="Repetitions per cell, where the suite sets none.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Have another program measure the same engine beside sparkdash.

    PROFILE is loaded if it does not run. sparkdash measures, then the program, then sparkdash again, on the same engine
    through the same address. The definitions of both stand below the figures. Install the program in an environment of
    its own.

    \b
    Examples:
      sparkdash bench verify gpt-oss-120b --with llama-benchy
      sparkdash bench verify gpt-oss-120b --with guidellm --reps 3
      sparkdash bench verify --url http://127.0.0.1:8000 --with vllm
    """
    from sparkdash.bench.report.peer_table import compare
    from sparkdash.bench.report.peer_tools import TOOLS

    if (profile is None) == (url is None):
        raise typer.BadParameter("give a PROFILE or --url", param_hint="PROFILE")
    tool = TOOLS[peer.value]
    found = _program(tool, program)
    if profile is not None:
        url, model = _loaded(profile, ask=not yes)
    before = _measured(url or "", model, suite, reps, ask=not yes and profile is None)
    asked = _Verification(tool, found, url or "", tokenizer, before)
    theirs, failures = asked.figures()
    after = _measured(url or "", model, suite, reps, ask=False)
    told = compare(before, after, tool, theirs, version=asked.version(), failures=failures)
    if as_json:
        return print_json(told)
    return _print(told)


def _program(tool: PeerTool, given: str | None) -> str:
    from sparkdash.errors import AdmissionError

    found = shutil.which(given or tool.executable)
    if found is None:
        raise AdmissionError(
            f"{given or tool.executable} is not installed here.", code="peer_not_found", status=404,
            hint=f"`{tool.install}` in an environment of its own, then name its file with --program.",
        )  # fmt: skip
    return found


def _loaded(profile: str, *, ask: bool) -> tuple[str, str]:
    """Load the profile; return the gateway's root URL and the profile's exact name."""
    import uvloop

    from sparkdash.cli.output.screen import confirm, is_interactive
    from sparkdash.client.client import AsyncClient
    from sparkdash.client.follow import until_ready
    from sparkdash.errors import AdmissionError

    async def load() -> tuple[str, str]:
        async with AsyncClient() as client:
            name = (await client.profile(name=profile)).name
            evicts = (await client.plan(name=name)).evict
            if evicts and ask:
                if not is_interactive():
                    raise AdmissionError(
                        f"Loading {name} would stop {', '.join(evicts)}.", code="unconfirmed",
                        hint="Add --yes to begin without a question.",
                    )  # fmt: skip
                if not confirm(f"Loading {name} stops {', '.join(evicts)}. Begin?"):
                    raise typer.Abort
            world = await until_ready(client, name, lambda _: None, "bench")
            return world.daemon.url.removesuffix("/v1"), name

    return uvloop.run(load())


def _measured(url: str, model: str | None, suite: str, reps: int | None, *, ask: bool) -> Results:
    """Measure with our own client; return the new run."""
    from sparkdash.bench import run_folder
    from sparkdash.bench.run import Mode
    from sparkdash.cli.bench.measure import MeasureOptions, measure
    from sparkdash.errors import AdmissionError

    before = {place.name for place in run_folder.list_runs()}
    measure(
        MeasureOptions(
            arms=(url,), suite=suite, mode=Mode.SCREEN, model=model, reps=reps, fresh=True, ask=ask, silent=True
        )
    )
    place = next((place for place in run_folder.list_runs() if place.name not in before), None)
    if place is None:
        raise AdmissionError("Nothing was measured, so nothing can be verified.", code="nothing_measured")
    return run_folder.read_results(place)


@dataclass(frozen=True, slots=True)
class _Verification:
    """The other program's measurement of the cells of our run."""

    tool: PeerTool
    program: str
    url: str
    tokenizer: str | None
    results: Results

    def figures(self) -> tuple[dict[CellKey, Figures], tuple[str, ...]]:
        """Run the program for each cell; return its figures, and what failed."""
        from sparkdash.bench.report.peer_tools import measured_cells, read_result

        theirs: dict[CellKey, Figures] = {}
        failures: list[str] = []
        reps = {cell.key: cell.reps for cell in self.results.run.cells}
        with tempfile.TemporaryDirectory() as folder, _book_server() as book:
            for number, key in enumerate(measured_cells(reps)):
                asked = self._request(key, reps[key], f"{folder}/{number}.json", book)
                print_note(f"{self.tool.name}: {key.context} x {key.output}, {key.concurrency} at once ...")
                try:
                    theirs[key] = read_result(self.tool, self._result(asked), key)
                except ValueError as error:
                    theirs[key] = {}
                    failures.append(f"{self.tool.name} failed at {key.context} x {key.output}: {error}")
        return theirs, tuple(failures)

    def _request(self, key: CellKey, runs: int, result: str, book: str) -> PeerRequest:
        from sparkdash.bench.report.peer_tools import PeerRequest

        run = self.results.run
        told = self.results.launches[-1].provenance if self.results.launches else None
        own = told.model if told else None
        root = self.url.rstrip("/").removesuffix("/v1").rstrip("/")
        name = run.model or own or ""
        return PeerRequest(self.program, root, name, self.tokenizer or own or name, key, runs, result, book)

    def _result(self, asked: PeerRequest) -> str:
        """Run the program; return its result file. Raises ValueError with its last words."""
        code, words = self._run(self.tool.command(asked), CELL_S)
        with contextlib.suppress(OSError):
            if code == 0:
                return Path(asked.result).read_text(encoding="utf-8")
        raise ValueError(words[-FAILED_WORDS:].strip() or f"it ended with {code} and wrote no result")

    def version(self) -> str | None:
        """Return the program's version."""
        code, words = self._run([self.program, "--version"], VERSION_S)
        found = [word for word in words.split() if word[:1].isdigit() and "." in word]
        return found[0] if code == 0 and found else None

    def _run(self, argv: list[str], deadline_s: float) -> tuple[int, str]:
        import uvloop

        from sparkdash.host.command import run_command

        local = {} if self.tokenizer else {"HF_HUB_OFFLINE": "1"}
        env = {key: value for key, value in os.environ.items() if key != "SPARKDASH_KEY"} | local
        try:
            done = uvloop.run(run_command(argv, deadline_s=deadline_s, env=env | {"NO_PROXY": "*"}))
        except (TimeoutError, OSError) as error:
            return -1, str(error) or f"it did not end within {deadline_s:g} s"
        return done.code, f"{done.out}\n{done.err}"


@contextlib.contextmanager
def _book_server() -> Iterator[str]:
    """Yield the URL of a text on loopback, for programs that would otherwise fetch one."""
    import http.server

    from sparkdash.bench.plan.prompt_text import text_pieces

    text = "".join(islice(text_pieces("prose", "book"), BOOK_WORDS)).encode()

    class Book(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Book)
    thread = threading.Thread(target=server.serve_forever, name="book", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/book.txt"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _print(found: PeerComparison) -> None:
    from sparkdash.bench.report.formats.terminal import print_page
    from sparkdash.bench.report.peer_table import comparison_page

    print_page(comparison_page(found), make_console(sys.stdout, terminal_width()))
