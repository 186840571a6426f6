"""Hook: one table `[[hooks]]` of config.toml, a command or a webhook for events of the box.

Pure.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_HOOKS = 32


class HookEventKind(StrEnum):
    """Event that a hook is told of."""

    READY = "ready"
    """A model came up and answers."""
    FAILED = "failed"
    """A model did not come up."""
    DIED = "died"
    """A model that ran ended by itself, or stood still."""
    KILLED = "killed"
    """The memory guard killed a model."""
    SWAP = "swap"
    """A swap is done: who came, and who left."""
    NODE_LOST = "node_lost"
    """Another node is not reachable any more."""
    ALERT = "alert"
    """A figure passed a limit of `[[alerts]]`."""


class Hook(BaseModel):
    """Command or webhook. The event is JSON: on standard input, or as the body of a POST."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    on: tuple[HookEventKind, ...] = tuple(HookEventKind)
    """Events; without the key all of them."""
    command: tuple[str, ...] = ()
    """Program and its arguments; no shell reads them."""
    url: str | None = None
    """Address of a webhook, http or https."""
    profiles: tuple[str, ...] = ()
    """Profiles whose events count, `*` allowed; empty: all."""
    timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Seconds after which the command is killed, or the webhook given up."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.command) is bool(self.url):
            raise ValueError("a hook has either `command` or `url`")
        if self.url is not None and not _is_address(self.url):
            raise ValueError(f"`url` is no http or https address: {self.url}")
        return self

    @property
    def name(self) -> str:
        """Name for people: the program, or the host of the webhook. Never a whole address, which may be a secret."""
        return self.command[0] if self.command else urlsplit(self.url or "").hostname or "webhook"

    def wants(self, kind: str, profile: str | None) -> bool:
        """Whether the hook is told of this event."""
        if kind not in self.on:
            return False
        return not self.profiles or (profile is not None and any(fnmatchcase(profile, one) for one in self.profiles))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and " " not in url
