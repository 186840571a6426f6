"""Settings: the few things an owner decides for the whole box.

Owns: defaults, and their one file, `config.toml` in the config folder, overridable by SPARKDASH_* variables.
Must not know what the values do.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from sparkdash import paths
from sparkdash.errors import ProfileError

DEFAULT_PORT = 8484
"""Where clients find the gateway. Free in IANA's list and used by no engine that sparkdash knows."""


_Port = Annotated[int, Field(ge=1, le=65535)]


def _ascending(ports: tuple[int, int]) -> tuple[int, int]:
    if ports[0] > ports[1]:
        raise PydanticCustomError("ascending", "The first port comes first, and the last one behind it")
    return ports


class Policy(BaseModel):
    """What the owner decides for one profile: a table `[policy."NAME"]`, NAME a profile or a whole family."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pinned: bool = False
    """No request makes it leave, nor does time: only a person does."""
    idle_ttl_s: float | None = Field(default=None, gt=0)
    """It is stopped when nobody has used it for so long. Not given: `idle_ttl_s` of the box."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Requests that it serves at once, those that wait for it counted; the next one is told to come back (429)."""


class Settings(BaseModel):
    """What `config.toml` may hold. Durations in seconds, memory in GiB; all finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: str = "127.0.0.1"
    """Where the gateway listens. Beyond loopback only once there are keys (`sparkdash keys add`)."""
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    host_names: tuple[str, ...] = ()
    """Further names that clients call this box by; a request under any other name is refused (DNS rebinding)."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may ask the engines, `*` allowed in each; those of this box and of editors may anyway."""
    tls_cert: Path | None = None
    """The certificate, with its chain, as PEM: with it and `tls_key` the port speaks https."""
    tls_key: Path | None = None
    runtime: Literal["podman", "docker", "process"] = "podman"
    profiles: tuple[Path, ...] = ()
    """More folders of profiles; later ones win over earlier ones and over those shipped with sparkdash."""
    shipped_profiles: bool = True
    hf_home: Path = Path("~/.cache/huggingface")
    cache_dir: Path = Path("~/.cache/sparkdash")
    engine_ports: Annotated[tuple[_Port, _Port], AfterValidator(_ascending)] = (18000, 18999)
    """Engines listen on free ports in this range, on loopback."""
    reserve_gib: float = Field(default=10.0, ge=0)
    """Memory that admission keeps free. 10 GiB: the floor that owners' reports converge on (an engine's host side, page tables, desktop)."""
    guard: Literal["off", "warn", "act"] = "act"
    """What the memory guard does when memory runs short: nothing, tell, or hold loads back and kill an engine."""
    guard_warn_gib: float | None = Field(default=None, ge=0)
    """Available memory under which it warns; None is 12 GiB, or 12 % of a small box."""
    guard_hold_gib: float | None = Field(default=None, ge=0)
    """Under which no load begins; None is 8 GiB, or 8 %."""
    guard_kill_gib: float | None = Field(default=None, ge=0)
    """Under which it kills the engine that costs least; None is 5 GiB, or 5 %."""
    contiguity: Literal["refuse", "warn", "off"] | None = None
    """What happens when too few large blocks of memory are free for a load, and none can be won back: it is refused, or started
    with a warning, or not looked at. Not given: refused on a DGX Spark, whose driver needs them; not looked at elsewhere."""
    drain_s: float = Field(default=120.0, ge=0)
    """How long a swap waits for running requests before it cuts them."""
    stop_grace_s: float = Field(default=30.0, ge=0)
    reclaim_s: float = Field(default=300.0, ge=0)
    """How long to wait for memory to come back after a container has gone."""
    drop_page_cache: bool = False
    """After an engine is gone, advise the kernel to let go of its weight files' pages, unless an engine that runs or comes
    reads them too. Those files alone, unlike `/proc/sys/vm/drop_caches`. Off: the kernel gives cached pages back by itself when
    memory is asked for, and a model that comes back soon is read from memory instead of the disk."""
    no_progress_s: float = Field(default=1200.0, gt=0)
    """A load that makes no progress for this long has failed."""
    warm_s: float = Field(default=300.0, gt=0)
    """Limit of the warm-up generation; the first one compiles kernels."""
    side_by_side: bool = True
    """As many engines at once as fit. False: one at a time."""
    preload: tuple[str, ...] = ()
    """Profiles that the daemon brings up when it starts, in this order, as far as they fit beside one another."""
    idle_ttl_s: float | None = Field(default=None, gt=0)
    """An engine is stopped when nobody has used it for so long. Not given: never."""
    policy: dict[str, Policy] = {}
    """What holds for single profiles or families."""
    min_dwell_s: float = Field(default=30.0, ge=0)
    """An engine in use serves for so long before a request for another one interrupts it: agents that take turns would
    swap for every question."""
    max_wait_s: float = Field(default=900.0, ge=0)
    """A request that has waited for so long goes before everyone else, and interrupts whatever is in its way."""
    queue_limit: int = Field(default=200, ge=1)
    """Requests that may wait; the next one is told to come back."""
    hold_headers_s: float = Field(default=3.0, ge=0)
    """A waiting stream gets its true status for this long; after it, keep-alives."""
    progress_as_reasoning: bool = False
    """Tell a waiting chat or messages stream how far the load is, as reasoning text. Off: several agents send it back in
    their next turn (where it is taken out again), and some count its tokens. A single request asks for it with the header `x-sparkdash-progress: reasoning`."""
    padded_clients: tuple[str, ...] = ()
    """User-Agents, `*` allowed, whose waiting requests without `stream` get white space while the model loads. A later
    failure then has status 200. A single request asks for it with the header `x-sparkdash-keep-alive: whitespace`.
    """
    model_names: dict[str, str] = {
        "claude-*haiku*": "auto",
        "gpt-*-mini": "auto",
        "gpt-*-nano": "auto",
    }
    """What an unknown model's name stands for: a pattern with `*`, and a profile or `auto`. The first that fits counts.
    Agents send their small background calls (titles, summaries) to such names: `auto` never swaps for one."""
    capture: bool = False
    """Keep the bodies of requests in `captured.jsonl` of the state folder, without what looks like a secret, for looking into a client's
    trouble. They are what people wrote: off unless it is needed."""
    sample_s: float = Field(default=1.0, gt=0)
    body_limit_mib: int = Field(default=64, ge=1)
    """Largest body of one request."""
    bodies_limit_mib: int = Field(default=1024, ge=1)
    """What the bodies of all requests that wait may take together; the next one is told to come back."""
    body_s: float = Field(default=30.0, gt=0)
    """A request's body must be here in this time, and a second more for every 64 KiB of it."""
    translator_idle_s: float = Field(default=600.0, gt=0)
    """The translator, which carries /v1/messages and /v1/responses to engines that do not speak them, and the counter, which counts
    tokens of what is not loaded, end when nobody has used them for so long."""
    first_byte_s: float | None = Field(default=None, gt=0)
    """Longest time from a request to the beginning of an engine's answer; a profile may set its own. Not given: no
    limit, since a long prompt is read for minutes.
    """
    between_bytes_s: float | None = Field(default=None, gt=0)
    """Longest silence within an answer; a profile may set its own. Not given: no limit."""
    slow_client_s: float = Field(default=600.0, ge=0)
    """A client that takes nothing of its answer for this long, while there is more, is cut, since it holds an engine's
    place; 0: never."""

    @property
    def beyond_loopback(self) -> bool:
        """Can other boxes reach the port?"""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def policy_of(self, profile: str) -> Policy:
        """What holds for this profile: its own table, else its family's, else nothing special."""
        own = self.policy.get(profile) or self.policy.get(profile.split("/", 1)[0]) or Policy()
        return own if own.idle_ttl_s is not None else Policy(**{**dict(own), "idle_ttl_s": self.idle_ttl_s})

    def profile_folders(self) -> list[Path]:
        """Where profiles are read, weakest first: shipped, the owner's, then `profiles`."""
        shipped = [paths.shipped_profiles()] if self.shipped_profiles else []
        own = paths.config_dir() / "profiles"
        return [*shipped, *([own] if own.is_dir() else []), *(folder.expanduser() for folder in self.profiles)]


def load(file: Path | None = None, **overrides: Any) -> Settings:
    """Defaults, then the file, then SPARKDASH_HOST/PORT/RUNTIME, then `overrides` (None is not given).

    Raises:
        ProfileError: the file cannot be read or holds a key or value that is not known; names each.
    """
    path = file or place()
    values = _read(path)
    origin = dict.fromkeys(values, str(path))
    for key in ("host", "port", "runtime"):
        if value := os.environ.get(name := f"SPARKDASH_{key.upper()}"):
            values[key], origin[key] = value, name
    given = {key: value for key, value in overrides.items() if value is not None}
    values.update(given)
    origin.update({key: f"--{key.replace('_', '-')}" for key in given})
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = tuple(f"{origin[str(e['loc'][0])]}: {_place(e['loc'])}{e['msg']}" for e in found)
        unknown = [e["loc"] for e in found if e["type"] == "extra_forbidden"]
        raise ProfileError(
            f"The settings are not valid: {problems[0]}.",
            code="settings_invalid",
            problems=problems,
            hint=_known(unknown[0]) if unknown else None,
        ) from None
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing = "tls_key" if settings.tls_key is None else "tls_cert"
        raise ProfileError(
            f"The settings are not valid: {missing} is missing.",
            code="settings_invalid",
            hint="https needs both, tls_cert and tls_key.",
        )
    return settings


def place() -> Path:
    """Where the owner's file is, or would be."""
    return paths.config_dir() / "config.toml"


def _known(loc: tuple[int | str, ...]) -> str:
    """What might have been meant where that key is."""
    table = Policy if len(loc) > 1 else Settings
    return f"Known keys: {', '.join(table.model_fields)}."


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc)) + ": "


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise ProfileError(f"{path} cannot be read: {error}.", code="settings_invalid") from None
