"""Recipe: one client's configuration, as data.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sparkdash.connect.gateway_target import GatewayTarget


class ClientProtocol(StrEnum):
    """API that a client speaks; decides how its route is tested."""

    CHAT = "chat"
    """POST /v1/chat/completions"""
    RESPONSES = "responses"
    """POST /v1/responses"""
    MESSAGES = "messages"
    """POST /v1/messages"""
    ROUTER = "router"
    """GET /v1/models as llama.cpp's router tells it, then POST /v1/chat/completions"""


class FileFormat(StrEnum):
    """Format of a configuration file."""

    JSON = "json"
    """JSON, with comments allowed as in editors."""
    TOML = "toml"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Settings that a file must hold; the rest of the file is its owner's."""

    path: str | None
    """Path of the file, `~` is the home folder. None: no fixed path; the owner must give one."""
    format: FileFormat
    content: Mapping[str, Any] | Sequence[Any]
    """Objects are merged key by key, lists item by item."""
    same: str = "name"
    """Key by which items of a list are matched."""
    seed: Mapping[str, Any] | None = None
    """Initial content of a file that does not exist yet."""


class Language(StrEnum):
    """Programming language of a snippet."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"


@dataclass(frozen=True, slots=True)
class Snippet:
    """Complete small program that uses a library; the part before its first question is what other programs need."""

    language: Language
    text: str


@dataclass(frozen=True, slots=True)
class Setup:
    """Configuration of one client. Optional settings are left out."""

    files: tuple[ConfigFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the client's process."""
    snippets: tuple[Snippet, ...] = ()
    """Equivalent programs that use the library, one per language."""
    steps: tuple[str, ...] = ()
    """Manual steps in order."""
    run: str | None = None
    """Command that starts the client."""
    notes: tuple[str, ...] = ()
    """Notes on the client's time-outs and habits."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Set-up recipe of a client. `source`: where its format was read, and for which version."""

    name: str
    title: str
    protocol: ClientProtocol
    setup: Callable[[GatewayTarget], Setup]
    source: str
