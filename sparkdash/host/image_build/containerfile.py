"""Facts of a Containerfile that matter before it is built: its base images and whether they are for this box.

Owns: FROM, the ARG before it, and the images that files are taken from. Must not know what else an instruction does.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_FROM = re.compile(r"FROM\s+(?:--platform=(\S+)\s+)?(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_ARG = re.compile(r"ARG\s+([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?$", re.IGNORECASE)
_TAKEN = (
    re.compile(r"COPY\s+(?:--\S+\s+)*--from=(\S+)", re.IGNORECASE),
    re.compile(r"RUN\s+(?:--\S+\s+)*--mount=(?:\S*,)?from=([^\s,]+)", re.IGNORECASE),
)
"""Other images that files are taken from: their name, a stage's name, or its number."""
_HEREDOC = re.compile(r"(?<!<)<<(-?)(?!<)([\"']?)(\w+)\2")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class BaseImage:
    """Image that a stage begins with. `platform`: as the line demands it, such as linux/amd64; None: this box's."""

    name: str
    platform: str | None = None


def base_images(text: str, args: Mapping[str, str], *, first: str | None = None) -> tuple[BaseImage, ...]:
    """List the images that a build fetches, without its own stages and scratch.

    `args`: build arguments given; `first`: the image that replaces the one of the first FROM.
    """
    known: dict[str, str] = {}
    stages: set[str] = set()
    found: dict[BaseImage, None] = {}
    seen = 0
    for line in _instructions(text):
        if not seen and (arg := _ARG.match(line)):
            known[arg[1]] = args.get(arg[1], (arg[2] or "").strip().strip("\"'"))
        elif stage := _FROM.match(line):
            seen += 1
            name = first if seen == 1 and first else _expanded(stage[2], known)
            platform = _expanded(stage[1], known) if stage[1] else None
            if name.lower() not in stages and name != "scratch":
                found[BaseImage(name, platform or None)] = None
            stages.add((stage[3] or "").lower())
        else:
            found |= dict.fromkeys(map(BaseImage, _taken_from(line, stages)))
    return tuple(found)


def _taken_from(line: str, stages: set[str]) -> Iterator[str]:
    for pattern in _TAKEN:
        taken = pattern.match(line)
        if taken and taken[1].lower() not in stages and not taken[1].isdigit():
            yield taken[1]


def _instructions(text: str) -> Iterator[str]:
    """Yield instructions, lines joined at a backslash, without comments and the texts after `<<EOF`."""
    held = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.lstrip().startswith("#"):
            continue
        if line.rstrip().endswith("\\"):
            held += line.rstrip()[:-1] + " "
            continue
        if whole := (held + line).strip():
            yield whole
            _skip_heredocs(whole, lines)
        held = ""


def _skip_heredocs(line: str, following: Iterator[str]) -> None:
    """Skip the texts that a line begins: a program in them may have lines such as `from x import y`."""
    for tabs, _, end in _HEREDOC.findall(line):
        for text in following:
            if (text.lstrip("\t") if tabs else text) == end:
                break


def _expanded(word: str, known: Mapping[str, str]) -> str:
    # BUILDPLATFORM and its like are this box's: an empty platform means the same
    return _VARIABLE.sub(lambda found: known.get(found[1] or found[3]) or found[2] or "", word)
