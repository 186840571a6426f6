"""Names of cells: contexts and lengths in the words of the published tables.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkdash.bench.run import CellKey

LENGTHS = ("short", "medium", "long")
"""Names of the published matrix's three output lengths."""


def matrix_cells(keys: Iterable[CellKey]) -> tuple[CellKey, ...]:
    """Return the cells of the context matrix: one request at a time, cold, all classes of prompt. Batches have their
    own table.
    """
    plain = [one for one in keys if not one.warm and not one.text]
    crowds = {(one.context, one.output) for one in plain if one.concurrency > 1}
    single = [one for one in plain if one.concurrency == 1]
    return tuple(one for one in single if (one.context, one.output) not in crowds) or tuple(single)


def context_name(tokens: int) -> str:
    """Format a context: 512, 2K, 16K. Even binary thousands have a K, as published."""
    return f"{tokens // 1024}K" if tokens and tokens % 1024 == 0 else str(tokens)


def length_names(outputs: Sequence[int], given: Mapping[str, int]) -> dict[int, str]:
    """Return the names of output lengths: the suite's, else short, medium and long for three, else the tokens."""
    found = sorted(set(outputs))
    if given:
        called = {tokens: word for word, tokens in given.items()}
        return {one: called.get(one, f"{one} tokens") for one in found}
    if len(found) == len(LENGTHS):
        return dict(zip(found, LENGTHS, strict=True))
    return {one: f"{one} tokens" for one in found}


def short_cell_name(key: CellKey, words: dict[int, str]) -> str:
    """Format a cell for narrow columns: `ctx=2K long`, `ctx=512 256 x4`."""
    said = [f"ctx={context_name(key.context)}", words.get(key.output, str(key.output)).removesuffix(" tokens")]
    said += [f"x{key.concurrency}"] * (key.concurrency > 1) + ["warm"] * key.warm + [key.text] * bool(key.text)
    return " ".join(said)


def cell_name(key: CellKey, words: dict[int, str] | None = None) -> str:
    """Format a cell: `ctx=2K long`, `ctx=512 256 tokens, 4 at once`, `ctx=0 long, warm`."""
    said = [f"ctx={context_name(key.context)} {(words or {}).get(key.output, f'{key.output} tokens')}"]
    if key.concurrency > 1:
        said.append(f"{key.concurrency} at once")
    if key.warm:
        said.append("warm")
    if key.text:
        said.append(key.text)
    return ", ".join(said)
