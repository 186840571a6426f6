"""`sparkdash launch`: start a client for this gateway, with nothing written to its files."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sparkdash.cli.connect import complete_client, target_of
from sparkdash.cli.output import print_note
from sparkdash.cli.parameters import complete_profile
from sparkdash.cli.running_daemon import start_daemon_if_needed

if TYPE_CHECKING:
    from sparkdash.connect.recipe import Recipe


class PassingOn(TyperCommand):
    """Command that leaves what follows `--` to another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


def launch(
    context: typer.Context,
    client: Annotated[
        str, typer.Argument(metavar="CLIENT", help="See `connect --list`.", autocompletion=complete_client)
    ],
    profile: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROFILE]",
            help="Default: the one that runs, else `default` of config.toml.",
            autocompletion=complete_profile,
        ),
    ] = None,
) -> None:
    """Start CLIENT with the variables and options for sparkdash. Nothing is written: without `launch` it runs as before.

    The model loads at the client's first question. A key comes from SPARKDASH_KEY. What follows `--` is the client's.

    \b
    Examples:
      sparkdash launch claude-code
      sparkdash launch codex gpt-oss-120b
      sparkdash launch opencode qwen3-coder -- run "explain this folder"
    """
    from sparkdash.connect.clients import find_recipe

    chosen = find_recipe(client)
    path = _program(chosen)
    start_daemon_if_needed(profile)
    place = target_of(profile, None)
    start = chosen.setup(place).launch
    assert start is not None  # noqa: S101 - _program has looked
    print_note(f"{chosen.title} uses {place.model} at {place.root}.")
    os.execve(path, [*start.argv, *context.obj], {**os.environ, **start.env})  # noqa: S606 - its owner's wish


def _program(recipe: Recipe) -> str:
    """Return the path of the client's program. Raises AdmissionError: not_launchable, client_missing."""
    from sparkdash.connect.clients import RECIPES
    from sparkdash.connect.recipe import GatewayTarget
    from sparkdash.errors import AdmissionError

    any_target = GatewayTarget("http://127.0.0.1", "auto", None)
    start = recipe.setup(any_target).launch
    if start is None:
        able = (name for name, each in RECIPES.items() if each.setup(any_target).launch)
        raise AdmissionError(
            f"{recipe.title} takes its gateway from its own settings only.",
            code="not_launchable",
            hint=f"`sparkdash connect {recipe.name}` prints them. launch starts {', '.join(able)}.",
        )
    if (path := shutil.which(start.argv[0])) is None:
        raise AdmissionError(
            f"There is no `{start.argv[0]}` on PATH, so {recipe.title} cannot be started.",
            code="client_missing",
            hint=f"Install {recipe.title}, or put its folder on PATH.",
        )
    return path
