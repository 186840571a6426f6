"""Configuration files of other programs that serve models, in their usual places.

Owns: the places. Must not know: what the files hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparkdash.discovery.found import FoundFile

LLAMA_SWAP, SPARKRUN = "llama-swap", "sparkrun"
PLACES = {
    LLAMA_SWAP: (
        "~/.config/llama-swap/config.yaml",
        "~/.config/llama-swap/config.yml",
        "~/llama-swap/config.yaml",
        "/etc/llama-swap/config.yaml",
    ),
    SPARKRUN: ("~/.config/sparkrun/registries.yaml", "~/.config/sparkrun/config.yaml"),
}


def find_files() -> tuple[FoundFile, ...]:
    """Return the first file of each program that can be read."""
    return tuple(_find())


def _find() -> Iterator[FoundFile]:
    for kind, places in PLACES.items():
        for place in map(Path, places):
            path = place.expanduser()
            if _is_readable(path):
                yield FoundFile(kind, str(path))
                break


def _is_readable(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False
