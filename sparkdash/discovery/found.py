"""Findings of a look at the box, and the steps of a setup that follow from them. Pure."""

from dataclasses import dataclass
from enum import StrEnum

LLAMA_SWAP = "llama-swap"


class SetupStep(StrEnum):
    """Steps of a setup, in their order."""

    BOX = "box"
    ATTACH = "attach"
    IMPORT = "import"
    MODEL = "model"
    SERVICE = "service"
    CLIENTS = "clients"
    FIRST_TOKEN = "first-token"  # noqa: S105 - a token of text


class StepOutlook(StrEnum):
    """Suggestion of setup for a step."""

    DONE = "done"
    PROPOSED = "proposed"
    OFFERED = "offered"
    """Possible, and left out unless the owner asks for it."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class FoundServer:
    """OpenAI-compatible server on loopback that is not sparkdash."""

    kind: str
    """Program that usually listens on this port: "Ollama", "llama-swap"."""
    url: str
    models: tuple[str, ...]
    """Names that it lists, the first ones of a long list; models that write text come first."""
    mute: frozenset[str] = frozenset()
    """Models that write no text, such as those of embeddings."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """Configuration of another program."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Discovered:
    """All findings."""

    servers: tuple[FoundServer, ...] = ()
    files: tuple[FoundFile, ...] = ()
