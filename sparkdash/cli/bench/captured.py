"""`sparkdash bench captured`: make a suite from captured requests.

Owns: the suite's two files. Must not know: how anything is measured.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkdash.cli.output import print_note

if TYPE_CHECKING:
    from sparkdash.bench.plan.captured_requests import CapturedRequest, Chat

MOST, OUTPUT = 20, 256
EXTRA = "`pip install 'sparkdash[translate]'`"
NO_TRANSLATOR = f"the translator is not installed ({EXTRA})."


def captured(
    name: Annotated[str, typer.Argument(help="Name of the new suite.", metavar="NAME")],
    file: Annotated[
        Path | None, typer.Option("--file", help="Captured requests; default: captured.jsonl in the state folder.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Take the last N different chats.")] = MOST,
    output: Annotated[
        int, typer.Option("--output", min=16, help="Tokens of each answer, the same for every profile.")
    ] = OUTPUT,
) -> None:
    """Make a suite of what your own clients sent.

    The suite compares the speed of profiles on your own work. `capture = true` in config.toml keeps the requests. Their text is copied into a file beside the suite that only you can read.
    It stays on this box; no report or export contains it. The suite's hash identifies its prompts. Requests of
    Anthropic's Messages and OpenAI's Responses (Claude Code, Codex) are translated into the chats that an engine
    without those protocols would get.

    \b
    Examples:
      sparkdash bench captured mine
      sparkdash bench captured mine --most 100 --output 512
      sparkdash ab A B --suite mine
    """
    from sparkdash import paths
    from sparkdash.bench.plan import captured_requests as kept
    from sparkdash.catalog import yaml_writer
    from sparkdash.errors import AdmissionError, HostError

    source = file or paths.state_dir() / "captured.jsonl"
    try:
        requests, others = kept.select_requests(source.read_text(encoding="utf-8").splitlines(), most)
    except OSError as error:
        raise AdmissionError(
            f"{source} cannot be read: {error.strerror}.", code="nothing_captured", status=404,
            hint="Set `capture = true` in config.toml to keep what clients send from then on.",
        ) from error  # fmt: skip
    chats, unused = _chats(requests)
    others += unused
    if not chats:
        routes = ", ".join((kept.ROUTE, *kept.TRANSLATED))
        raise AdmissionError(
            f"{source} has no chats ({others} other requests).", code="nothing_captured", status=404,
            hint=f"Only requests to {routes} of up to 1 MiB are used; of the latter two with {EXTRA} alone.",
        )  # fmt: skip
    digest = kept.chats_digest(chats)
    suite = {
        "suite": name, "version": digest[:8],
        "about": f"{len(chats)} captured chats of your own; their text stays on this box.",
        "prompts": f"{name}.prompts", "prompts_sha256": digest,
        "cells": [{"output": output, "text": kept.TEXT, "reps": len(chats)}],
    }  # fmt: skip
    folder = paths.config_dir() / "suites"
    _must_be_free(name, suite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _owners_alone(folder / f"{name}.prompts", "".join(f"{kept.chat_line(chat)}\n" for chat in chats))
        (folder / f"{name}.yaml").write_text(yaml_writer.dump(suite), encoding="utf-8")
    except OSError as error:
        raise HostError(f"{folder} cannot be written: {error.strerror}.", code="suite_unwritable") from error
    print_note(
        f"Wrote {folder / name}.yaml: {len(chats)} chats ({others} other requests were skipped). "
        f"Measure them with `--suite {name}`."
    )


def _chats(requests: Sequence[CapturedRequest]) -> tuple[tuple[Chat, ...], int]:
    """Return the chats of captured requests, and how many requests gave none; other protocols are translated."""
    import uvloop

    from sparkdash import log
    from sparkdash.bench.plan.captured_requests import ROUTE, different_chats
    from sparkdash.errors import HostError
    from sparkdash.gateway.translate.translator import chats_of_requests
    from sparkdash.units import counted

    foreign = [one for one in requests if one[0] != ROUTE]
    translated: list[Mapping[str, Any] | None] = [None] * len(foreign)
    if foreign:
        log.configure(level=logging.ERROR)  # that the translator runs is the daemon's news
        try:
            translated = uvloop.run(chats_of_requests(foreign))
        except HostError as error:
            verb = "is" if len(foreign) == 1 else "are"
            why = NO_TRANSLATOR if error.code == "translator_missing" else error.message
            print_note(f"{counted(len(foreign), 'request')} of {_routes(foreign)} {verb} left out: {why}")
    rest = iter(translated)
    bodies = [body if path == ROUTE else next(rest) for path, body in requests]
    return different_chats(body for body in bodies if body is not None), sum(body is None for body in bodies)


def _routes(requests: Sequence[CapturedRequest]) -> str:
    return " and ".join(sorted({path for path, _ in requests}))


def _must_be_free(name: str, suite: dict[str, Any]) -> None:
    """Refuse a name that is invalid or belongs to a suite of another origin."""
    from pydantic import ValidationError

    from sparkdash.bench.plan import suites
    from sparkdash.errors import AdmissionError

    try:
        suites.Suite.model_validate(suite)
    except ValidationError:
        raise AdmissionError(
            f"{name!r} is not a valid name for a suite.", code="suite_name_invalid",
            hint="Use small letters, digits, - and _; begin with a letter or a digit.",
        ) from None  # fmt: skip
    file = suites.suite_files().get(name)
    if file is not None and not file.with_suffix(".prompts").exists():
        raise AdmissionError(
            f"The suite {name} exists already: {file}.", code="suite_exists", status=409, hint="Choose another name.",
        )  # fmt: skip


def _owners_alone(place: Path, text: str) -> None:
    place.unlink(missing_ok=True)
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")
