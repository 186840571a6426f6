"""`sparkdash hooks`: the owner's commands and webhooks, listed and tried."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import print_json, print_text
from sparkdash.cli.parameters import AsJson
from sparkdash.errors import HostError
from sparkdash.units import duration

if TYPE_CHECKING:
    from typing import Any

    from sparkdash.settings import Hook, HookEventKind

NONE = "docs/monitoring.md shows the table [[hooks]] of config.toml."


class HookAction(StrEnum):
    """Actions on the hooks."""

    LIST = "list"
    TEST = "test"


def hooks(
    action: Annotated[
        HookAction, typer.Argument(help="List the hooks, or run them with an example.")
    ] = HookAction.LIST,
    event: Annotated[str, typer.Argument(help="ready, failed, died, killed, swap, node_lost or alert.")] = "ready",
    as_json: AsJson = False,
) -> None:
    """List and try the hooks: what is told when a model dies.

    The list names the hooks of config.toml with their events; arguments and addresses are not shown. `test` runs every
    hook that wants EVENT, now and from here, with an example, and exits 1 when one fails. The example has
    `"details": {"trial": true}`. A hook for some profiles runs too.

    \b
    Examples:
      sparkdash hooks
      sparkdash hooks list --json
      sparkdash hooks test died
    """
    if action is HookAction.LIST:
        _list_hooks(as_json=as_json)
    else:
        _try_hooks(event, as_json=as_json)


def _list_hooks(*, as_json: bool) -> None:
    from sparkdash.settings import load_settings

    known = load_settings().hooks
    if as_json:
        print_json({"hooks": [_row(hook) for hook in known]})
        return
    for hook in known:
        of = f" of {', '.join(hook.profiles)}" if hook.profiles else ""
        print_text(f"{hook.name}: {', '.join(hook.on)}{of}; {duration(hook.timeout_s)} at most")
    if not known:
        print_text(f"There are no hooks. {NONE}")


def _try_hooks(event: str, *, as_json: bool) -> None:
    import asyncio

    from sparkdash.settings import HookEventKind, load_settings

    try:
        kind = HookEventKind(event)
    except ValueError:
        raise typer.BadParameter(f"give one of {', '.join(HookEventKind)}", param_hint="EVENT") from None
    wanting = [hook for hook in load_settings().hooks if kind in hook.on]
    if not wanting:
        raise HostError(f"No hook wants {kind}.", code="no_hooks", hint=NONE)
    results = asyncio.run(_tried(wanting, kind))
    if as_json:
        print_json({"hooks": results})
    else:
        print_text("\n".join(f"{each['hook']}: {each['error'] or 'done'}" for each in results))
    if any(each["error"] for each in results):
        raise typer.Exit(1)


async def _tried(hooks: list[Hook], event: HookEventKind) -> list[dict[str, Any]]:
    import socket

    from sparkdash.hooks import example_event, run_hook
    from sparkdash.upstream import Upstream

    results: list[dict[str, Any]] = []
    async with Upstream() as upstream:
        for hook in hooks:
            error = None
            try:
                await run_hook(hook, example_event(event, socket.gethostname(), time.time()), upstream)
            except HostError as failed:
                error = failed.message
            results.append({"hook": hook.name, "event": event.value, "error": error})
    return results


def _row(hook: Hook) -> dict[str, Any]:
    return {
        "hook": hook.name,
        "kind": "webhook" if hook.url else "command",
        "on": [kind.value for kind in hook.on],
        "profiles": list(hook.profiles),
        "timeout_s": hook.timeout_s,
    }
