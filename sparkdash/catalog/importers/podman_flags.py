"""Flags of `podman run` and `docker run`: how they are written, and which ones a profile leaves out.

Owns: splitting a command line into flags with their values, and the reasons for flags without a key in a profile. Must
not know: profiles, engines.
Pure.
"""

from __future__ import annotations

from sparkdash.catalog.importers.report import ImportNotes

_REASONS = {
    "ipc": "the host's shared memory is not given away; shm_size does it",
    "net": "sparkdash always uses the host's network, on loopback",
    "network": "sparkdash always uses the host's network, on loopback",
    "publish": "sparkdash chooses the port; clients use the gateway",
    "restart": "sparkdash decides what runs; a crash loop of an engine can freeze the box",
    "rm": "the log of an engine that died must stay readable",
    "ulimit": "a profile has no limits; the runtime's own hold",
    "hooks-dir": "CDI hands the GPU in",
    "security-opt": "a profile changes no security settings",
    "runtime": "CDI hands the GPU in",
    "env-file": "it is not read; put what it holds under env, and secrets into the daemon's environment",
    "pull": "sparkdash pulls as a step of its own",
    "privileged": "no engine needs it for the GPU",
    "log-driver": "sparkdash sets it",
    "log-opt": "sparkdash sets it",
    "label": "sparkdash sets its own labels",
}
"""Why a profile leaves a flag out."""
SILENT = {"detach", "replace", "interactive", "tty", "init"}
"""Flags that an import drops without a remark."""
_BARE = {
    "detach",
    "interactive",
    "tty",
    "init",
    "privileged",
    "rm",
    "read-only",
    "publish-all",
    "no-healthcheck",
    "tls-verify",
    "replace",
    "quiet",
    "oom-kill-disable",
    "no-hosts",
}
_SHORT = {
    "d": "detach",
    "i": "interactive",
    "t": "tty",
    "v": "volume",
    "e": "env",
    "p": "publish",
    "l": "label",
    "w": "workdir",
    "u": "user",
    "h": "hostname",
    "m": "memory",
    "P": "publish-all",
    "q": "quiet",
}


def split_options(words: list[str], notes: ImportNotes) -> tuple[list[tuple[str, str | None]], int]:
    """Return the runtime's flags with their values, and the index of the image."""
    options: list[tuple[str, str | None]] = []
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        word = words[index]
        read = _long if word.startswith("--") else _short
        index = read(word, words, index + 1, options, notes)
    return options, index + (words[index : index + 1] == ["--"])


def _long(word: str, words: list[str], index: int, options: list[tuple[str, str | None]], notes: ImportNotes) -> int:
    """Parse a long flag such as `--name x` or `--name=x`; return the next index."""
    key, equals, value = word[2:].partition("=")
    if equals or key in _BARE or index >= len(words):
        options.append((key, value if equals else None))
        return index
    if words[index].startswith("-"):
        notes.unknown(word)
        return index
    options.append((key, words[index]))
    return index + 1


def _short(word: str, words: list[str], index: int, options: list[tuple[str, str | None]], _notes: ImportNotes) -> int:
    """Parse short flags such as `-it`, `-v a:b`, `-p8000:8000`; return the next index."""
    for at, letter in enumerate(word[1:], start=1):
        key = _SHORT.get(letter, letter)
        if key in _BARE:
            options.append((key, None))
        elif rest := word[at + 1 :]:
            options.append((key, rest.removeprefix("=")))
            return index
        else:
            options.append((key, words[index] if index < len(words) else None))
            return index + 1
    return index


def note_left_out(key: str, value: str | None, notes: ImportNotes) -> None:
    """Note a flag that has no key in a profile, with the reason where one is known."""
    if reason := _REASONS.get(key):
        what = f"--{key}" if value is None or key in ("label", "env-file") else f"--{key} {value}"
        notes.dropped(what, reason)
    else:
        notes.unknown(f"--{key}" if len(key) > 1 else f"-{key}", "a profile has no key for it; left out")
