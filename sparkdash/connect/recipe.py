"""Recipe: one client's configuration, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sparkdash.connect.gateway_target import GatewayTarget


class ClientProtocol(StrEnum):
    """What a client speaks, and so what proves its route."""

    CHAT = "chat"
    """POST /v1/chat/completions"""
    RESPONSES = "responses"
    """POST /v1/responses"""
    MESSAGES = "messages"
    """POST /v1/messages"""
    ROUTER = "router"
    """GET /v1/models as llama.cpp's router tells it, then POST /v1/chat/completions"""


class FileFormat(StrEnum):
    """How a file is written."""

    JSON = "json"
    """With comments allowed, as editors have them."""
    TOML = "toml"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file must hold; the rest of it is its owner's."""

    path: str | None
    """`~` is the home folder. None: it has no fixed place, and one must be given."""
    format: FileFormat
    content: Mapping[str, Any] | Sequence[Any]
    """Objects are merged key by key, lists item by item."""
    same: str = "name"
    """Two items of a list are the same when they agree in this key."""
    seed: Mapping[str, Any] | None = None
    """What else a file that is not there yet must begin with."""


class Language(StrEnum):
    """Programming language of a snippet."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A small complete program that uses a library; the part before its first question is what other programs need."""

    language: Language
    text: str


@dataclass(frozen=True, slots=True)
class Setup:
    """All that one client needs. Nothing of it is optional to the reader: what can be left out is not in it."""

    files: tuple[ConfigFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the client's process."""
    snippets: tuple[Snippet, ...] = ()
    """Programs that use the library, one per language; each does the same."""
    steps: tuple[str, ...] = ()
    """What a person does by hand, in order."""
    run: str | None = None
    """How the client is then started."""
    notes: tuple[str, ...] = ()
    """What to know of its time-outs and habits."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A client. `source`: where its format was read, and for which version."""

    name: str
    title: str
    protocol: ClientProtocol
    setup: Callable[[GatewayTarget], Setup]
    source: str
