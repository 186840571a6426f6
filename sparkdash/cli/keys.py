"""`sparkdash keys`: add, list and revoke the keys of the gateway."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash import paths
from sparkdash.cli.output import print_json, print_note, print_table, print_text
from sparkdash.cli.parameters import AsJson
from sparkdash.units import DASH, tokens

if TYPE_CHECKING:
    from sparkdash.keyring import Key, Scope
    from sparkdash.store.usage import KeyUsage

HEAD = ("name", "for", "models", "req/min", "tokens/day", "requests", "prompt", "completion", "tokens today")
LEAST = ("prompt", "completion", "requests", "tokens today", "req/min", "tokens/day")


class KeyAction(StrEnum):
    """Action words of `sparkdash keys`."""

    LIST = "list"
    ADD = "add"
    REVOKE = "revoke"


def _complete(incomplete: str) -> list[str]:
    from sparkdash import keyring

    try:
        return [key.name for key in keyring.read_keys(keyring.keys_file()) if key.name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a Tab that fails must stay silent, whatever the reason
        return []


def keys(
    action: Annotated[KeyAction, typer.Argument(help="What to do.")] = KeyAction.LIST,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Letters, digits, dot, dash, underscore.", autocompletion=_complete),
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="add: inference (the default), control or metrics; may be repeated.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="add: only these profiles, families or aliases; * allowed, may be repeated."),
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="add: in any 60 seconds.")] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(min=1, help="add: prompt and completion, per day of UTC.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="add: refuse the key from then on: 90d, 12h, 2w, or a day: 2027-03-01."),
    ] = None,
    batch: Annotated[bool, typer.Option("--batch", help="add: its requests let others go first.")] = False,
    autocomplete: Annotated[
        bool, typer.Option("--autocomplete", help="add: its requests stop no engine, and wait for none.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List, add and revoke the keys of the gateway.

    A key says who may use the gateway, for what, and how much. Without any key, everybody on this box may use the
    gateway, and nobody else: it listens on loopback only. From the first key on, every client needs one, except on the
    unix socket of this command line and the dashboard.

    `add` prints the key, this once: only its digest is stored. The key goes to stdout, everything else to stderr. A
    running daemon knows it at once. `list` shows what each key may do and has used. `revoke`: the daemon refuses the
    key's next request; answers under way may finish.

    \b
    Examples:
      sparkdash keys
      sparkdash keys add laptop
      sparkdash keys add ci --models 'qwen3-*' --requests-per-minute 30
      sparkdash keys add console --scope control --scope inference
      sparkdash keys add guest --expires 7d --tokens-per-day 2000000
      sparkdash keys list --json | jq '.keys[] | [.name, .usage]'
      sparkdash keys revoke ci
    """
    if action is KeyAction.LIST:
        return _list(as_json=as_json)
    if name is None:
        raise typer.BadParameter(f"`{action}` needs one", param_hint="NAME")
    if action is KeyAction.REVOKE:
        return _revoke(name, as_json=as_json)
    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_day": tokens_per_day,
        "batch": batch,
        "autocomplete": autocomplete,
    }
    return _add(name, scope, models, expires, limits, as_json=as_json)


def _add(
    name: str,
    scope: list[str] | None,
    models: list[str] | None,
    expires: str | None,
    limits: Mapping[str, int | bool | None],
    *,
    as_json: bool,
) -> None:
    from sparkdash import keyring
    from sparkdash.keyring import NAME, Key, Scope, digest, new_secret

    if not re.match(NAME, name):
        raise typer.BadParameter("up to 64 letters, digits, dots, dashes, underscores", param_hint="NAME")
    scopes = _scopes(scope)
    if models and scopes != (Scope.INFERENCE,):
        raise typer.BadParameter("a key for some models is for inference alone", param_hint="--scope")
    secret, now = new_secret(), time.time()
    key = Key(
        name=name,
        sha256=digest(secret),
        scopes=scopes,
        models=tuple(models or ()),
        **limits,
        created_at=now,
        expires_at=_expiry(expires, now),
    )
    keyring.add_key(keyring.keys_file(), key)
    note_change("keys add", name)
    if as_json:
        print_json(
            {"name": name, "key": secret, "scopes": key.scopes, "models": key.models, "expires_at": key.expires_at}
        )
        return
    print_text(secret)
    until = "" if key.expires_at is None else f", until {_moment(key.expires_at)}"
    print_note(f"{name}: for {' and '.join(key.scopes)}{until}. The key is shown only this once.")


def _expiry(text: str | None, now: float) -> float | None:
    from sparkdash.keyring import expiry

    try:
        return None if text is None else expiry(text, now)
    except ValueError as error:
        raise typer.BadParameter(
            f"give a span such as 90d or 12h, or a future day such as 2027-03-01 ({error})", param_hint="--expires"
        ) from None


def _moment(unix_s: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M")


def _scopes(given: list[str] | None) -> tuple[Scope, ...]:
    from sparkdash.keyring import Scope as Side

    try:
        return tuple(dict.fromkeys(Side(word) for word in given or (Side.INFERENCE,)))
    except ValueError:
        raise typer.BadParameter("inference, control or metrics", param_hint="--scope") from None


def _list(*, as_json: bool) -> None:
    from sparkdash import keyring

    found = keyring.read_keys(keyring.keys_file())
    used = _usage([key.name for key in found])
    if as_json:
        print_json({"keys": [_facts(key, used.get(key.name)) for key in found]})
    elif not found:
        print_text("No keys: everybody on this box may use the gateway, and nobody else.")
    else:
        print_table(HEAD, [_row(key, used.get(key.name)) for key in found], "<<<>>>>>>", LEAST)


def _usage(names: list[str]) -> dict[str, KeyUsage]:
    import sqlite3

    from sparkdash.store import usage

    try:
        return usage.read_key_usage(paths.state_dir() / "sparkdash.db", names, usage.utc_day(time.time()))
    except sqlite3.Error as error:
        print_note(f"The usage is unknown: the database cannot be read ({error}).")
        return {}


def _facts(key: Key, used: KeyUsage | None) -> dict[str, object]:
    return {**key.model_dump(mode="json", exclude={"sha256"}), "usage": used._asdict() if used else None}


def _row(key: Key, used: KeyUsage | None) -> tuple[str, ...]:
    limits = (DASH if limit is None else str(limit) for limit in (key.requests_per_minute, key.tokens_per_day))
    figures = (DASH,) * 4
    if used:
        today = used.prompt_tokens_today + used.completion_tokens_today
        figures = (str(used.requests), tokens(used.prompt_tokens), tokens(used.completion_tokens), tokens(today))
    classes = [word for word in ("batch", "autocomplete") if getattr(key, word)]
    ends = [] if key.expires_at is None else [f"until {_moment(key.expires_at)}"]
    sides = ", ".join([*key.scopes, *classes, *(["expired"] if key.has_expired(time.time()) else ends)])
    return (key.name, sides, ", ".join(key.models) or "all", *limits, *figures)


def _revoke(name: str, *, as_json: bool) -> None:
    from sparkdash import keyring, settings

    left = keyring.revoke_key(keyring.keys_file(), name)
    note_change("keys revoke", name)
    if as_json:
        print_json({"revoked": name, "left": [key.name for key in left]})
        return
    print_text(f"Revoked: {name}.")
    if not left:
        far = settings.load_settings().beyond_loopback
        print_note(
            "No key is left: nobody may use the gateway now, and the daemon will not start again."
            if far
            else "No key is left: everybody on this box may use the gateway now."
        )


def note_change(did: str, name: str) -> None:
    from sparkdash import keyring

    entry = {"at": round(time.time(), 3), "who": f"uid {os.getuid()}", "from": None, "did": did, "said": {"name": name}}
    try:
        keyring.append_entry(keyring.audit_file(), {**entry, "status": None})
    except OSError as error:
        print_note(f"The audit log cannot be written: {error.strerror}.")
