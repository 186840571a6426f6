"""A book of made-up prose with a tokenizer for it, and its server: llama-benchy takes its book from a URL only."""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from sparkdash.bench.plan import texts
from sparkdash.sim.speed import text_of, tokenize

BOOK = 100_000
"""Words: long enough that two prompts hardly begin at one place."""
PATTERN = r" ?[A-Za-z]{1,5}|[0-9]{1,3}| ?[!-/:-@\[-`{-~]{1,3}|\s{1,6}"
"""sim.tokens', for a text of plain ASCII."""


def write_book(folder: Path) -> None:
    """Write the book, and a tokenizer that cuts it as the simulated engine does."""
    book = "".join(islice(texts.text_pieces("prose", "book"), BOOK))
    pieces = sorted({text_of([token]) for token in tokenize(book)})
    (folder / "book.txt").write_text(book)
    vocabulary = {piece: number for number, piece in enumerate(["<unk>", *pieces])}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    document: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": split, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Without a line per request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def book_shop(folder: Path) -> Iterator[int]:
    """Serve that folder; yield the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
