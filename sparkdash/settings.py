"""Settings of the whole box: defaults, `config.toml` with SPARKDASH_* variables above it, and changes of that file."""

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from sparkdash import paths
from sparkdash.errors import ProfileError, expected


def set_toml_value(text: str, path: Sequence[str], value: str | None) -> str:
    """Return `text` with the value at `path` replaced, added, or removed (`value` None). `value` is TOML.

    The new text is parsed again, and must hold exactly the old content with this one change.

    Raises:
        ProfileError: code `toml_layout`, when a comment within the old value would be lost.
    """
    import tomlkit  # 80 ms, and only an owner's change needs it

    new = None if value is None else tomlkit.value(value)
    wanted, document = parse_toml(text), tomlkit.parse(text)
    old = _put(document, path, new)
    _put(wanted, path, None if new is None else new.unwrap())
    changed = tomlkit.dumps(document)
    lost = isinstance(old, tomlkit.items.Array) and "\n" in old.as_string() and "#" in old.as_string()
    if lost or parse_toml(changed) != wanted:
        raise ProfileError(
            f"{'.'.join(path)} is written in a way that cannot be changed without losing what stands around it.",
            code="toml_layout",
            hint="Change the value in the file itself.",
        )
    return changed


def _put(tables: Any, path: Sequence[str], value: Any) -> Any:
    *above, key = path
    for name in above:
        if name not in tables and value is None:
            return None
        tables = tables.setdefault(name, {})
    old = tables.get(key)
    if value is None:
        tables.pop(key, None)
    else:
        tables[key] = value
    return old


DEFAULT_PORT = 8484
"""Port of the gateway. Free in IANA's list, and used by no engine that sparkdash knows."""


_Port = Annotated[int, Field(ge=1, le=65535)]


def _ascending(ports: tuple[int, int]) -> tuple[int, int]:
    if ports[0] > ports[1]:
        raise PydanticCustomError("ascending", "The first port comes first, and the last one behind it")
    return ports


class Policy(BaseModel):
    """Policy of one profile: a table `[policy."NAME"]`, where NAME is a profile or a whole family."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pinned: bool = False
    """Keep the engine until a person stops it: neither a request nor time makes it leave."""
    idle_ttl_s: float | None = Field(default=None, gt=0)
    """Seconds without use after which the engine is stopped. Not given: `idle_ttl_s` of the box."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Most requests at once, those that wait for the engine included; further ones get 429."""
    autocomplete: bool = False
    """Treat each request for it as autocomplete: it stops no other engine, and gets 503 at once while its own is not
    loaded.
    """


class HistorySettings(BaseModel):
    """Limits of the recorded past: the table `[history]`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_gib: float = Field(default=1.0, ge=0.1)
    """Size of the database file. Beyond it the oldest figures and sums are deleted; two years of four engines need
    about 0.4 GiB. Holds from the next start of the daemon.
    """


class Settings(BaseModel):
    """Values of `config.toml`. Durations in seconds, memory in GiB; all finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: str = "127.0.0.1"
    """Address on which the gateway listens. Beyond loopback only once there are keys (`sparkdash keys add`)."""
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    """Port of the gateway."""
    host_names: tuple[str, ...] = ()
    """Further names by which clients call this box; a request under any other name is refused (DNS rebinding)."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use the engines, `*` allowed in each. Pages of this box and of editors always
    may.
    """
    tls_cert: Path | None = None
    """PEM file of the certificate and its chain: with it and `tls_key` the port speaks https."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key."""
    runtime: Literal["podman", "docker", "process"] = "podman"
    """Program that runs the engines: containers of podman or docker, or plain processes of this user."""
    profiles: tuple[Path, ...] = ()
    """More folders of profiles; later ones win over earlier ones and over those shipped with sparkdash."""
    shipped_profiles: bool = True
    """Whether the profiles that come with sparkdash are listed."""
    hf_home: Path = Path("~/.cache/huggingface")
    """Folder of the weights: the Hugging Face cache, which other tools share."""
    cache_dir: Path = Path("~/.cache/sparkdash")
    """Folder of the engines' compiled kernels."""
    engine_ports: Annotated[tuple[_Port, _Port], AfterValidator(_ascending)] = (18000, 18999)
    """Range of ports on loopback; each engine listens on a free one."""
    reserve_gib: float = Field(default=10.0, ge=0)
    """Memory that admission keeps free.

    10 GiB is what owners' reports agree on: an engine's host side, page tables, the desktop.
    """
    guard: Literal["off", "warn", "act"] = "act"
    """Action of the memory guard when memory runs short: none, a warning, or holding loads back and killing an
    engine.
    """
    guard_warn_gib: float | None = Field(default=None, ge=0)
    """Available memory below which the guard warns. Not given: 12 GiB, or 12 % of a small box."""
    guard_hold_gib: float | None = Field(default=None, ge=0)
    """Available memory below which no load begins. Not given: 8 GiB, or 8 %."""
    guard_kill_gib: float | None = Field(default=None, ge=0)
    """Available memory below which the guard kills the engine that costs least. Not given: 5 GiB, or 5 %."""
    contiguity: Literal["refuse", "warn", "off"] | None = None
    """Action when too few large blocks of memory are free for a load, and none can be won back.

    The load is refused, or started with a warning, or nothing is checked. Not given: refused on a DGX Spark, whose
    driver needs such blocks; not checked elsewhere.
    """
    node_silent_s: float = Field(default=30.0, gt=0)
    """Seconds for which another node may be silent until its engines count as lost.

    vLLM itself waits for 300 s for a peer that is silent, and calls itself healthy.
    """
    drain_s: float = Field(default=120.0, ge=0)
    """Seconds for which a swap waits for running requests before it cuts them."""
    stop_grace_s: float = Field(default=30.0, ge=0)
    """Seconds that an engine gets to end by itself before it is killed."""
    reclaim_s: float = Field(default=300.0, ge=0)
    """Seconds for which memory may take to come back after a container has gone."""
    drop_page_cache: bool = False
    """Whether the kernel is advised to drop the cached pages of an engine's weight files once the engine is gone.

    Files that another engine reads are left out; `/proc/sys/vm/drop_caches` would drop everything. Off: the kernel
    gives cached pages back when memory is needed, and a model that comes back soon is read from memory instead of the
    disk.
    """
    no_progress_s: float = Field(default=1200.0, gt=0)
    """Seconds without progress after which a load has failed."""
    warm_s: float = Field(default=300.0, gt=0)
    """Seconds for the warm-up generation; the first one compiles kernels."""
    side_by_side: bool = True
    """Whether as many engines run at once as fit. False: one at a time."""
    preload: tuple[str, ...] = ()
    """Profiles that the daemon loads when it starts, in this order, as far as they fit together."""
    idle_ttl_s: float | None = Field(default=None, gt=0)
    """Seconds without use after which an engine is stopped. Not given: never."""
    policy: dict[str, Policy] = {}
    """Policies of single profiles or families."""
    default: str | None = None
    """Profile to return to once nobody has used any engine for `default_after_s`."""
    default_after_s: float = Field(default=900.0, gt=0)
    """Seconds without any request until the box returns to `default`."""
    any: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = {}
    """Names that mean one of several profiles: whichever runs, else the first."""
    history: HistorySettings = HistorySettings()
    """Limits of what the daemon records."""
    min_dwell_s: float = Field(default=30.0, ge=0)
    """Seconds for which an engine in use serves before a request for another one interrupts it.

    Without it, agents that take turns would swap for every question. 0: none, whatever `min_dwell_share` says.
    """
    min_dwell_share: float = Field(default=1.0, ge=0)
    """The same as a share of the time that the engine took to load, where that is longer; 1: as long as the load."""
    max_wait_s: float = Field(default=900.0, ge=0)
    """Seconds of waiting after which a request goes before all others and interrupts whatever is in its way."""
    queue_limit: int = Field(default=200, ge=1)
    """Most requests that wait; further ones are refused with Retry-After."""
    hold_headers_s: float = Field(default=3.0, ge=0)
    """Seconds for which a waiting stream's status is held back, so that it is the true one; after them, keep-alives."""
    progress_as_reasoning: bool = False
    """Whether a waiting chat or messages stream is told the progress of the load as reasoning text.

    Off: several agents send it back in their next turn (where it is taken out again), and some count its tokens. A
    single request asks for it with the header `x-sparkdash-progress: reasoning`.
    """
    padded_clients: tuple[str, ...] = ()
    """User-Agents, `*` allowed, whose waiting requests without `stream` get white space while the model loads.

    A later failure then has status 200. A single request asks for it with the header `x-sparkdash-keep-alive:
    whitespace`.
    """
    model_names: dict[str, str] = {"claude-*haiku*": "auto", "gpt-*-mini": "auto", "gpt-*-nano": "auto"}
    """Profile, or `auto`, for unknown model names: pattern with `*` to profile. The first pattern that fits counts.

    Agents send their small background calls (titles, summaries) to such names: `auto` never swaps for one.
    """
    capture: bool = False
    """Whether bodies of requests are kept in `captured.jsonl` of the state folder, and the texts of their answers in
    `captured-answers.jsonl`, without what looks like a secret.

    They help to find a client's trouble, and are what people wrote: off unless needed.
    """
    responses_mib: int = Field(default=256, ge=0)
    """Disk for kept responses, in `responses` of the state folder; 0 keeps none.

    They are what people wrote. The oldest go first.
    """
    sample_s: float = Field(default=1.0, gt=0)
    """Seconds between two samples of the engines' figures while somebody watches."""
    body_limit_mib: int = Field(default=64, ge=1)
    """Largest body of one request."""
    bodies_limit_mib: int = Field(default=1024, ge=1)
    """Memory for the bodies of all waiting requests together; further requests are refused with Retry-After."""
    body_s: float = Field(default=30.0, gt=0)
    """Seconds within which a request's body must be complete, and one more for every 64 KiB of it."""
    first_byte_s: float | None = Field(default=None, gt=0)
    """Longest time from a request to the beginning of an engine's answer; a profile may set its own.

    Not given: no limit, since reading a long prompt takes minutes.
    """
    between_bytes_s: float | None = Field(default=None, gt=0)
    """Longest silence within an answer; a profile may set its own. Not given: no limit."""
    slow_client_s: float = Field(default=600.0, ge=0)
    """Seconds after which a client that takes nothing of its answer is cut, as it holds an engine's place; 0: never."""

    upload_limit_mib: int = Field(default=256, ge=1)
    """Largest form of audio or pictures."""
    socket_idle_s: float = Field(default=600.0, gt=0)
    """Seconds without a byte after which a WebSocket is closed, as it holds an engine's place."""
    socket_limit_mib: int = Field(default=4096, ge=1)
    """Bytes that may pass through one WebSocket in both directions; beyond them it is closed."""

    def serves_at(self, url: str) -> bool:
        """Whether a URL is the gateway's own address, as programs of this box write it."""
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        except ValueError:
            return False
        host = parts.hostname or ""
        here = host in ("localhost", "::1", "0.0.0.0", "::", self.host) or host.startswith("127.")  # noqa: S104
        return port == self.port and (here or host in {name.lower() for name in self.host_names})

    @property
    def beyond_loopback(self) -> bool:
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def policy_of(self, profile: str) -> Policy:
        """Return the policy of a profile: its own table, else its family's, else the default."""
        name = profile.partition("@")[0]  # a replica has its profile's
        own = self.policy.get(name) or self.policy.get(name.split("/", 1)[0]) or Policy()
        return own if own.idle_ttl_s is not None else Policy(**{**dict(own), "idle_ttl_s": self.idle_ttl_s})

    def profile_folders(self) -> list[Path]:
        """Return the folders of profiles, weakest first: shipped, the owner's, then `profiles`."""
        shipped = [paths.shipped_profiles()] if self.shipped_profiles else []
        own = paths.config_dir() / "profiles"
        return [*shipped, *([own] if own.is_dir() else []), *(folder.expanduser() for folder in self.profiles)]


def load_settings(file: Path | None = None, **overrides: Any) -> Settings:
    """Read defaults, the file, SPARKDASH_HOST/PORT/RUNTIME, then `overrides` (None: not given). Raises ProfileError."""
    path = file or settings_file()
    values = _read(path)
    origin = dict.fromkeys(values, str(path))
    for key in ("host", "port", "runtime"):
        if value := os.environ.get(name := f"SPARKDASH_{key.upper()}"):
            values[key], origin[key] = value, name
    given = {key: value for key, value in overrides.items() if value is not None}
    values.update(given)
    origin.update({key: f"--{key.replace('_', '-')}" for key in given})
    return _validated(values, origin)


_TOML_DEPTH = 30


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML that people wrote. Raises ValueError, also where it is nested beyond all sense."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [found]
    for _ in range(_TOML_DEPTH):
        parts = (part for one in level for part in (one.values() if isinstance(one, dict) else one))
        if not (level := [part for part in parts if isinstance(part, dict | list)]):
            return found
    raise ValueError(f"it is nested deeper than {_TOML_DEPTH}")


def parse_settings(text: str, path: Path) -> Settings:
    """Read settings from the text of a file. Raises ProfileError as `load_settings`, with `path` as the origin."""
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise ProfileError(f"{path} cannot be read: {error}.", code="settings_invalid") from None
    return _validated(values, dict.fromkeys(values, str(path)))


def _validated(values: Mapping[str, Any], origin: Mapping[str, str]) -> Settings:
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise _invalid(error, origin) from None
    if (settings.tls_cert is None) != (settings.tls_key is None):
        missing = "tls_key" if settings.tls_key is None else "tls_cert"
        raise ProfileError(
            f"The settings are not valid: {missing} is missing.",
            code="settings_invalid",
            hint="https needs both, tls_cert and tls_key.",
        )
    return settings


def _invalid(error: ValidationError, origin: Mapping[str, str]) -> ProfileError:
    """Word the wrong keys and values, each with its origin: a file, a variable or an option."""
    found = error.errors(include_url=False)
    problems = tuple(f"{origin[str(e['loc'][0])]}: {'.'.join(map(str, e['loc']))}: {_word(e)}" for e in found)
    unknown = [e["loc"] for e in found if e["type"] == "extra_forbidden"]
    return ProfileError(
        f"The settings are not valid: {problems[0]}.",
        code="settings_invalid",
        problems=problems,
        hint=_known(unknown[0]) if unknown else None,
    )


def _word(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    return expected(error)


def settings_file() -> Path:
    return paths.config_dir() / "config.toml"


def _known(loc: tuple[int | str, ...]) -> str:
    table: type[BaseModel] = Settings
    for key in loc[:-1]:
        if key in table.model_fields:
            table = _table_in(table.model_fields[str(key)].annotation) or table
    close = difflib.get_close_matches(str(loc[-1]), table.model_fields, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return f"{guess}Known keys: {', '.join(table.model_fields)}."


def _table_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a table, of a list of tables, or of tables by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _table_in(part))), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(paths.read_small_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
        raise ProfileError(f"{path} cannot be read: {error}.", code="settings_invalid") from None
