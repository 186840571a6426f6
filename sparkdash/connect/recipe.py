"""Recipe of a client: what it is told of the gateway, and its files, variables and steps as data. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LONG_S = 1800
"""Time-out for clients in seconds: a large model loads in up to 15 minutes, and may have to wait for its turn."""
LONG_MS = LONG_S * 1000
MASK = "YOUR_SPARKDASH_KEY"
VARIABLE = "SPARKDASH_KEY"
ASSUMED_CONTEXT = 32768
"""Tokens assumed for a profile of unknown context. A client told too little compacts early; one told too much fails."""
OUTPUT_SHARE, MOST_OUTPUT = 4, 32768
"""Longest answer to request: a quarter of the context, at most 32768 tokens. Agents request their maximum every time.
"""


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """Address of the gateway, and the model that a client shall use there."""

    root: str
    """http://127.0.0.1:8484: no slash at the end, no /v1."""
    model: str
    known_context: int | None
    """Tokens; None where the profile does not say."""
    key: str | None = None
    """Access key; None where the gateway requires none."""
    sees: bool = False
    """Whether the model is known to read images. Clients that are not told so leave images out."""
    autocomplete: str | None = None
    """Second model, which completes while one types."""

    @property
    def v1(self) -> str:
        return f"{self.root}/v1"

    @property
    def secret(self) -> str:
        """Key to configure: the access key, or a dummy, as most clients refuse to run without."""
        return self.key or "sparkdash"

    @property
    def env(self) -> dict[str, str]:
        return {VARIABLE: self.key} if self.key else {}

    @property
    def context(self) -> int:
        return self.known_context or ASSUMED_CONTEXT

    @property
    def output(self) -> int:
        """Longest answer to request, in tokens."""
        return min(MOST_OUTPUT, self.context // OUTPUT_SHARE)


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
    """`~` is the home folder. None: no fixed path; the owner must give one."""
    format: FileFormat
    content: Mapping[str, Any] | Sequence[Any]
    """Objects are merged key by key, lists item by item."""
    same: str = "name"
    """Key by which items of a list are matched."""
    seed: Mapping[str, Any] | None = None
    """Initial content of a file that does not exist yet."""


class Language(StrEnum):
    """Language of a snippet."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"


@dataclass(frozen=True, slots=True)
class Snippet:
    """Complete small program that uses a library; the part before its first question is what other programs need."""

    language: Language
    text: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Start of a client for this gateway alone: its own configuration stays as it is.

    In words and values, {file} and {folder} are a copy of the client's file with the gateway in it, and where it lies.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Variables beyond those of the shell."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Configuration of one client. Optional settings are left out."""

    files: tuple[ConfigFile, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    snippets: tuple[Snippet, ...] = ()
    """Equivalent programs that use the library, one per language."""
    steps: tuple[str, ...] = ()
    run: str | None = None
    launch: Launch | None = None
    """None where the client takes its gateway from its own settings only."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Set-up recipe of a client. `source`: where its format was read, and for which version."""

    name: str
    title: str
    setup: Callable[[GatewayTarget], Setup]
    source: str
    protocol: ClientProtocol = ClientProtocol.CHAT
