"""Corpora shipped with sparkdash, in the public domain (README.md names their sources), or a file of the owner."""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path

from sparkdash.bench.plan.corpus_text import LEAST_WORDS, CorpusText, cut_corpus
from sparkdash.errors import AdmissionError
from sparkdash.paths import home_relative

SHIPPED = ("prose", "code")


def load_corpus(name: str) -> CorpusText:
    """Load a shipped corpus by its name, else the UTF-8 text file of that path. `~` means the home.

    Raises:
        AdmissionError: `corpus_not_found`, `corpus_unusable`.
    """
    if name in SHIPPED:
        packed = files(__package__).joinpath(f"{name}.txt.gz").read_bytes()
        text, called = gzip.decompress(packed).decode(), name
    else:
        file = Path(name).expanduser()
        text, called = _read(file, name), home_relative(file)
    found = cut_corpus(called, text)
    if found is None:
        raise AdmissionError(
            f"{name} has fewer than {LEAST_WORDS} words.", code="corpus_unusable", hint="Give a longer text."
        )
    return found


def _read(file: Path, name: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AdmissionError(
            f"There is no corpus {name!r}.",
            code="corpus_not_found",
            status=404,
            hint=f"There are {' and '.join(SHIPPED)}; or give a text file.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AdmissionError(f"{name} cannot be read: {why}.", code="corpus_unusable") from None
