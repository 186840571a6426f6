"""Suites: the cells to measure, as YAML shipped with sparkdash (workloads/) or written by the owner.

A suite of captured requests has their text in a file beside it. A run keeps their digests, never their words.
The hash covers the meaning, not the file: comments and the order of keys do not change it, a cell does.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from sparkdash import paths
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind, Mode, PlannedCell, Run
from sparkdash.catalog.catalog import ProfileProblem, nearest
from sparkdash.catalog.document import Document, read_document
from sparkdash.domain.base import Frozen
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.paths import LARGE, read_small_text

TEXT = "captured"
"""Class of text of cells with captured requests."""
ROUTE = "/v1/chat/completions"
TRANSLATED = ("/v1/messages", "/v1/responses")
VOLATILE = frozenset({"client_metadata", "metadata", "model", "prompt_cache_key", "stream", "temperature"})
"""Fields of a request to another route that do not make it a different one."""
KEPT = ("messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "chat_template_kwargs")
"""Fields of a request that the engine reads. The cell decides how much it answers."""
UNFORCED = ("response_format",)
"""Fields that cells of a forced length leave out: a grammar ends an answer by itself."""

Chat = Mapping[str, Any]
CapturedRequest = tuple[str, Mapping[str, Any]]


def select_requests(lines: Iterable[str], most: int) -> tuple[tuple[CapturedRequest, ...], int]:
    """Return the last `most` different requests that can become chats, oldest first, and the number of other lines."""
    found: dict[str, CapturedRequest] = {}
    others = 0
    for line in lines:
        request = _request(line)
        if request is None:
            others += 1
        else:
            digest = chats_digest([{"path": request[0], **request[1]}])
            found.pop(digest, None)
            found[digest] = request
    return tuple(found.values())[-most:], others


def different_chats(bodies: Iterable[Mapping[str, Any]]) -> tuple[Chat, ...]:
    """Return the chats of request bodies with messages, each once, at its last place."""
    found: dict[str, Chat] = {}
    for body in bodies:
        if _has_messages(body):
            chat = _kept(body)
            found.pop(chats_digest([chat]), None)
            found[chats_digest([chat])] = chat
    return tuple(found.values())


def chats_digest(chats: Sequence[Chat]) -> str:
    return hashlib.sha256("\n".join(map(chat_line, chats)).encode()).hexdigest()


def chat_line(chat: Chat) -> str:
    return json.dumps(chat, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _request(line: str) -> CapturedRequest | None:
    """Return a captured request that can become a chat; None for another route, and for one too long to be kept."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    path, body = (entry.get("path"), entry.get("body")) if isinstance(entry, dict) else (None, None)
    if not isinstance(body, dict):
        return None
    if path == ROUTE:
        return (path, _kept(body)) if _has_messages(body) else None
    if path not in TRANSLATED:
        return None
    return path, {name: value for name, value in body.items() if name not in VOLATILE and value is not None}


def _kept(body: Mapping[str, Any]) -> Chat:
    return {name: body[name] for name in KEPT if body.get(name) is not None}


def _has_messages(body: Mapping[str, Any]) -> bool:
    messages = body.get("messages")
    return isinstance(messages, list) and bool(messages) and all(isinstance(one, dict) for one in messages)


SHIPPED = Path(__file__).parent / "workloads"
SUFFIXES = (".yaml", ".yml")
REPS = {Mode.SCREEN: 3, Mode.STANDARD: 5, Mode.CAREFUL: 5}
"""Default repetitions per cell and launch; launches contribute the rest of the precision."""


class _Given(Frozen):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CellGroup(_Given):
    """Cells that a suite lists together: every combination of the listed values. Lengths in tokens."""

    context: tuple[int, ...] = (0,)
    output: tuple[int, ...]
    concurrency: tuple[int, ...] = (1,)
    warm: tuple[bool, ...] = (False,)
    text: tuple[str, ...] = ("",)
    kind: Kind = Kind.SPEED
    reps: int | None = Field(default=None, gt=0)
    """Repetitions per launch in every mode; for math the number of questions."""

    @field_validator("context", "output", "concurrency", "warm", "text", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return value if isinstance(value, list | tuple) else [value]

    @field_validator("context")
    @classmethod
    def _whole_contexts(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(0 < one < LEAST_CONTEXT or one < 0 for one in value):
            raise ValueError(f"a context is 0 (the question alone) or at least {LEAST_CONTEXT} tokens")
        return value

    @field_validator("output", "concurrency")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(one < 1 for one in value):
            raise ValueError("must be at least 1")
        return value

    @field_validator("text")
    @classmethod
    def _known_text(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if one and one not in (*CLASSES, TEXT):
                raise ValueError(f"{one!r} is no class of text; they are {', '.join(CLASSES)}")
        return value


CLASSES = ("prose", "code", "json", "chat")
"""Classes of prompts; a cell without one takes each in turn."""
LEAST_CONTEXT = 128
"""Smallest context: the question and its nonce take up to about 100 tokens."""


class Suite(_Given):
    """Suite as its file defines it."""

    suite: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    version: str
    about: str
    lengths: dict[str, int] = {}
    """Names of output lengths in tables, {short: 32}. Without names they are numbered by report/blocks.py."""
    cells: tuple[CellGroup, ...] = Field(min_length=1)
    lag_limit_ms: float = Field(default=5.0, gt=0)
    """Requests during which the client's own loop was later than this do not count."""
    prompts: str | None = None
    """File of captured requests beside this one, a chat per line (`sparkdash bench suites --captured`)."""
    prompts_sha256: str | None = None
    """Digest of that file, so that the suite's hash covers its prompts."""
    _chats: tuple[Chat, ...] = PrivateAttr(())

    @property
    def chats(self) -> tuple[Chat, ...]:
        """Captured requests, available once the suite was read from its file."""
        return self._chats

    @model_validator(mode="after")
    def _has_prompts(self) -> Self:
        if (self.prompts is None) != (self.prompts_sha256 is None):
            raise ValueError("prompts and prompts_sha256 come together")
        if self.prompts is None and any(TEXT in group.text for group in self.cells):
            raise ValueError(
                "cells of captured requests want `prompts`; "
                "`sparkdash bench suites --captured NAME` writes such a suite"
            )
        return self

    @field_validator("version", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @property
    def hash(self) -> str:
        """Return the SHA-256 of the measured cells and the prompts; the description is excluded."""
        own = {"about"} if self.prompts is not None else {"about", "prompts", "prompts_sha256"}
        text = json.dumps(self.model_dump(mode="json", exclude=own), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def planned(self, mode: Mode, reps: int | None = None) -> tuple[PlannedCell, ...]:
        """Return the cells in the file's order. `reps` overrides the mode's default, not the suite's own."""
        cells = []
        for group in self.cells:
            for context, output, concurrency, warm, text in product(
                group.context, group.output, group.concurrency, group.warm, group.text
            ):
                key = CellKey(
                    suite=self.suite, context=context, output=output, concurrency=concurrency, warm=warm,
                    kind=group.kind, text=text,
                )  # fmt: skip
                cells.append(PlannedCell(key=key, reps=group.reps or reps or REPS[mode]))
        return tuple(cells)


def suite_files() -> dict[str, Path]:
    """Return the files of suites by name; the owner's file replaces sparkdash's of the same name."""
    return {
        file.stem: file
        for folder in (SHIPPED, paths.config_dir() / "suites")
        if folder.is_dir()
        for file in sorted(folder.iterdir())
        if file.suffix in SUFFIXES and not file.name.startswith(".")
    }


def suite_path(name: str) -> str | None:
    """Return the absolute file, `~` for the home, when `name` is a path; else None. Runs and reports store it."""
    if not (name.endswith(SUFFIXES) or "/" in name):
        return None
    return paths.home_relative(Path(name))


def load_suite(name: str) -> Suite:
    """Load a suite by name or path. Raises AdmissionError: suite_not_found; ProfileError: suite_invalid."""
    if file := suite_path(name):
        return read_suite(Path(file).expanduser())
    known = suite_files()
    if name not in known:
        close = nearest(name, tuple(known))
        hint = f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}; or give a YAML file."
        raise AdmissionError(f"There is no suite {name!r}.", code="suite_not_found", status=404, hint=hint)
    return read_suite(known[name])


def read_suite(file: Path) -> Suite:
    """Read the suite in that file. Raises ProfileError as `load_suite`."""
    document = read_document(file)
    if isinstance(document, ProfileProblem):
        raise _invalid([document])
    try:
        suite = Suite.model_validate(document.data)
    except ValidationError as error:
        raise _invalid(_problems(document, error)) from None
    twice = _twice(suite)
    if twice is not None:
        raise _invalid([document.problem(("cells",), f"the cell {twice} is listed twice")])
    misnamed = _misnamed(suite)
    if misnamed is not None:
        raise _invalid([document.problem(*misnamed)])
    if suite.prompts is not None:
        suite._chats = _chats(suite, file, document)
    return suite


def _chats(suite: Suite, file: Path, document: Document) -> tuple[Chat, ...]:
    place = file.parent / (suite.prompts or "")
    try:
        found = tuple(json.loads(line) for line in read_small_text(place, LARGE).splitlines())
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a JSON object a line"
        raise _invalid([document.problem(("prompts",), f"{place.name} cannot be read: {why}")]) from None
    if not found or chats_digest(found) != suite.prompts_sha256:
        raise _invalid([document.problem(("prompts_sha256",), f"{place.name} is not what this suite was made of")])
    return found


def _twice(suite: Suite) -> str | None:
    seen = set()
    for cell in suite.planned(Mode.SCREEN):
        if cell.key in seen:
            return f"context {cell.key.context}, output {cell.key.output}, concurrency {cell.key.concurrency}"
        seen.add(cell.key)
    return None


def _misnamed(suite: Suite) -> tuple[tuple[str, ...], str] | None:
    taken: dict[int, str] = {}
    for word, tokens in suite.lengths.items():
        if not any(tokens in group.output for group in suite.cells):
            return ("lengths", word), f"no cell has an output of {tokens} tokens"
        if taken.setdefault(tokens, word) != word:
            return ("lengths", word), f"{tokens} tokens are called {taken[tokens]!r} already"
    return None


def _problems(document: Document, error: ValidationError) -> list[ProfileProblem]:
    found = []
    # an unknown key is told before the one that is missing: it most often is that one, misspelt
    for item in sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden"):
        path = tuple(item["loc"])
        hint = None
        message = str(item["ctx"]["error"]) if item["type"] == "value_error" else item["msg"]
        if item["type"] == "extra_forbidden":
            known = tuple((CellGroup if path[0] == "cells" else Suite).model_fields)
            close = nearest(str(path[-1]), known)
            message = "unknown key"
            hint = f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(known)}."
        elif item["type"] == "missing":
            path, message = path[:-1], f"{path[-1]!r} is missing"
        found.append(document.problem(path, message[:1].lower() + message[1:], hint))
    return found


def _invalid(problems: list[ProfileProblem]) -> ProfileError:
    return ProfileError(
        f"The suite cannot be used: {problems[0]}", code="suite_invalid", problems=tuple(map(str, problems))
    )


def suite_of_run(run: Run) -> Suite:
    """Load the suite that the run measures. Raises AdmissionError: suite_changed, and as `load_suite`."""
    suite = load_suite(run.suite_file or run.suite)
    if suite.hash != run.suite_hash:
        raise AdmissionError(
            f"The suite {run.suite} has changed since {run.id} began.", code="suite_changed", status=409,
            hint="Start a new run.",
        )  # fmt: skip
    return suite


def can_resume(results: Results, fingerprints: Mapping[str, Collection[str]]) -> bool:
    """Whether suite and launched profiles are still those of the run; `fingerprints`: by profile, today's."""
    run = results.run
    try:
        suite_of_run(run)
    except (AdmissionError, ProfileError):
        return False
    profiles = {arm.name: arm.profile for arm in run.arms}
    launched = {(profiles.get(one.arm), one.provenance.fingerprint) for one in results.launches}
    return all(mark in fingerprints.get(profile or "", (mark,)) for profile, mark in launched)
