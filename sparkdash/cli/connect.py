"""`sparkdash connect` and `launch`: print, write or test a client's configuration, or start it for the gateway."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from sparkdash.cli.keys import note_change
from sparkdash.cli.output import confirm, is_interactive, print_json, print_note, print_table, print_text
from sparkdash.cli.parameters import AsJson, Yes, complete_profile
from sparkdash.cli.running_daemon import start_daemon_if_needed
from sparkdash.errors import AdmissionError, DaemonError
from sparkdash.units import gib

if TYPE_CHECKING:
    from sparkdash.connect.recipe import ConfigFile, GatewayTarget, Recipe, Setup
    from sparkdash.domain.metric import Memory
    from sparkdash.domain.profile import ProfileSummary


def complete_client(incomplete: str) -> list[str]:
    from sparkdash.connect.clients import RECIPES

    return [name for name in RECIPES if name.startswith(incomplete)]


def connect(
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help="See --list.", autocompletion=complete_client)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A profile; default: the one that runs, else `default` of config.toml.",
            autocompletion=complete_profile,
        ),
    ] = None,
    autocomplete: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="continue only: a second, small profile that completes while one types.",
            autocompletion=complete_profile,
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address of the gateway for the client; default: this box.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write its files: shows the change first, keeps a backup.")
    ] = False,
    file: Annotated[Path | None, typer.Option(help="Path of its file, if not the usual one.")] = None,
    test: Annotated[bool, typer.Option("--test", help="Send a real request as the client does.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the clients.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Print the configuration with which CLIENT uses sparkdash.

    The time-outs suit models that load for minutes. --write merges the configuration into the client's own files, and
    refuses if a comment would be lost. --test sends a request through the gateway as the client does; it loads a
    model that does not run. A key comes from SPARKDASH_KEY; where the
    gateway wants one and there is none, --write makes one of the client's name.

    \b
    Examples:
      sparkdash connect --list
      sparkdash connect codex
      sparkdash connect opencode --model qwen3-coder --write
      sparkdash connect claude-code --test
      sparkdash connect continue --autocomplete qwen2.5-coder-7b --write
      sparkdash connect zed --url http://spark.lan:8484 --json
    """
    from sparkdash.connect.client_setup import setup_facts, setup_page
    from sparkdash.connect.clients import RECIPES, find_recipe

    if listed:
        return _list(list(RECIPES.values()), as_json=as_json)
    if client is None:
        raise typer.BadParameter("name a client; --list shows them", param_hint="CLIENT")
    chosen = find_recipe(client)
    if autocomplete is not None and chosen.name != "continue":
        raise typer.BadParameter("only continue takes a second model here", param_hint="--autocomplete")
    place = target_of(model, url, autocomplete)
    if test:
        return _test(chosen, place, as_json=as_json)
    if write:
        return _write(chosen, file, place, yes=yes, as_json=as_json, new_key=_lacks_key(place, url))
    if _lacks_key(place, url):
        print_note(_get_key(chosen, "connect"))
    if as_json:
        return print_json(setup_facts(chosen, chosen.setup(place), place))
    return print_text(setup_page(chosen, chosen.setup(place), place), nl=False)


def _list(recipes: list[Recipe], *, as_json: bool) -> None:
    if as_json:
        print_json([{"name": r.name, "title": r.title, "protocol": r.protocol, "source": r.source} for r in recipes])
    else:
        print_table(("client", "", "protocol"), [(r.name, r.title, r.protocol) for r in recipes], "<<<")


def target_of(model: str | None, url: str | None, autocomplete: str | None = None) -> GatewayTarget:
    """Return what a client is configured for: the model that is named, else the one that runs or is begun with."""
    from sparkdash.client.address import at_url, find_daemon
    from sparkdash.client.client import Client
    from sparkdash.connect.recipe import GatewayTarget

    try:
        with Client() as client:
            world = client.state()
        profiles, root = world.profiles, world.daemon.url.removesuffix("/v1")
        usual = [one.profile for one in (world.active, world.default) if one is not None]
        memory = world.sample.memory if world.sample is not None else None
    except DaemonError as error:
        if error.code != "daemon_unreachable":
            raise
        from sparkdash.cli import local

        profiles, usual, root, memory = local.profile_summaries()[0], [], find_daemon().url, None
        print_note("No daemon answers. This configuration comes from its settings and profiles.")
    if given := url or os.environ.get("SPARKDASH_URL"):
        root = at_url(given).url
    chosen = _profile(profiles, model, usual)
    name = model or chosen.name
    key = os.environ.get("SPARKDASH_KEY", "").strip() or None
    if autocomplete is not None:
        _check_together(chosen, _profile(profiles, autocomplete, []), memory)
    return GatewayTarget(root, name, chosen.context, key, sees=bool(chosen.sees), autocomplete=autocomplete)


def _check_together(chosen: ProfileSummary, second: ProfileSummary, memory: Memory | None) -> None:
    """Raise AdmissionError if both models do not fit at once: autocomplete stops no engine to get its own."""
    if memory is None or chosen.needs_bytes is None or second.needs_bytes is None:
        print_note(f"Whether {second.name} fits beside {chosen.name} is unknown; `sparkdash why {second.name}` tells.")
    elif chosen.needs_bytes + second.needs_bytes + memory.reserve > memory.total:
        raise AdmissionError(
            f"{chosen.name} needs {gib(chosen.needs_bytes)} and {second.name} {gib(second.needs_bytes)}; with "
            f"{gib(memory.reserve)} in reserve they do not fit into {gib(memory.total)}.",
            code="does_not_fit",
            hint="Choose a smaller model for --autocomplete, or give one of them a smaller context.",
        )


def _profile(profiles: tuple[ProfileSummary, ...], model: str | None, usual: list[str]) -> ProfileSummary:
    from sparkdash.catalog.catalog import nearest

    runnable = [profile for profile in profiles if profile.cannot_run is None]
    if model is None:
        return _default_profile(runnable, usual)
    for profile in runnable:
        if model in (profile.name, *profile.serves, *(f"{profile.name}:{mode}" for mode in profile.modes)):
            return profile
    close = nearest(model, [profile.name for profile in runnable])
    raise AdmissionError(
        f"No profile that can run is called {model!r}.",
        code="model_not_found",
        hint=f"Did you mean {' or '.join(close)}?" if close else "`sparkdash profiles` shows them.",
    )


def _default_profile(runnable: list[ProfileSummary], usual: list[str]) -> ProfileSummary:
    """Choose the first of the usual profiles, else the one that `sparkdash setup` begins with."""
    from sparkdash.discovery.propose import FIRST

    by_name = {profile.name: profile for profile in runnable}
    found = [by_name[name] for name in (*usual, *FIRST) if name in by_name] or runnable
    if not found:
        raise AdmissionError("No profile can run.", code="no_profiles", hint="See `sparkdash profiles`.")
    return found[0]


def _lacks_key(place: GatewayTarget, url: str | None = None) -> bool:
    from sparkdash import keyring

    elsewhere = url or os.environ.get("SPARKDASH_URL")
    return place.key is None and not elsewhere and bool(keyring.read_keys(keyring.keys_file()))


def _get_key(recipe: Recipe, command: str) -> str:
    typed = f"SPARKDASH_KEY=$(sparkdash keys add {recipe.name}) sparkdash {command} {recipe.name}"
    return f"The gateway wants a key: `{typed}` makes one."


def _write(
    recipe: Recipe, given: Path | None, place: GatewayTarget, *, yes: bool, as_json: bool, new_key: bool
) -> None:
    """Write the client's files. `new_key`: with a key of the client's own, which is made and shown once."""
    from sparkdash import keyring
    from sparkdash.connect import client_setup
    from sparkdash.connect.client_setup import mask_key, remaining_steps

    key = keyring.Key(name=recipe.name, sha256=keyring.digest(secret := keyring.new_secret()), created_at=time.time())
    place = replace(place, key=secret) if new_key else place
    setup = recipe.setup(place)
    changes = [
        client_setup.plan_change(each, _path(recipe, each, given, alone=len(setup.files) == 1))
        for each in _some(recipe, setup)
    ]
    needed = [change for change in changes if change.needed]
    for change in needed:
        print_note(mask_key(change.diff(), place).rstrip("\n"))
    if needed and not yes and not _agreed():
        raise typer.Exit(1)
    if needed and new_key:
        keyring.add_key(keyring.keys_file(), key)
        note_change("keys add", recipe.name)
        print_note(f"Made the key {recipe.name} for it, shown only this once: {secret}")
    written = [{"path": str(change.path), "backup": client_setup.apply_change(change)} for change in needed]
    if as_json:
        print_json({"client": recipe.name, "written": written})
        return
    _print_written(written)
    if more := remaining_steps(setup, place):
        print_text(more, nl=False)


def _print_written(written: Sequence[Mapping[str, object]]) -> None:
    for each in written:
        backup = f" (before: {each['backup']})" if each["backup"] else ""
        print_text(f"Wrote {each['path']}{backup}")
    if not written:
        print_text("Nothing to write: the configuration is there already.")


def _some(recipe: Recipe, setup: Setup) -> tuple[ConfigFile, ...]:
    if not setup.files:
        where = (
            "is set up in your own program"
            if setup.snippets
            else "keeps its configuration where other programs cannot write it"
        )
        raise AdmissionError(
            f"{recipe.title} {where}.",
            code="not_writable",
            hint=f"`sparkdash connect {recipe.name}` prints what to enter.",
        )
    return setup.files


def _path(recipe: Recipe, file: ConfigFile, given: Path | None, *, alone: bool) -> Path:
    if given is not None and alone:
        return given.expanduser()
    if given is not None:
        raise AdmissionError(f"{recipe.title} has more than one file.", code="several_files", hint="Leave out --file.")
    if file.path is None:
        raise AdmissionError(
            f"{recipe.title}'s file has no usual place.", code="file_missing", hint="Give its path: --file PATH."
        )
    return Path(file.path).expanduser()


def _agreed() -> bool:
    if not is_interactive():
        print_note("Nothing was written. Use --yes to write without a question.")
        return False
    return confirm("Write this?", default=True)


def _test(recipe: Recipe, place: GatewayTarget, *, as_json: bool) -> None:
    from sparkdash.client.trial import attempt, what_it_said

    print_note(
        f"Asking {place.model} at {place.root} as {recipe.title} does; a model that does not run is loaded first."
    )
    trial = attempt(place.root, place.key, recipe.protocol.value, place.model)
    if as_json:
        print_json({"client": recipe.name, "root": place.root, **trial._asdict()})
    else:
        print_text(
            f"POST {trial.path} answered: first word after {trial.first_s:.1f} s, last after {trial.total_s:.1f} s.\n"
            f"{what_it_said(trial)}"
        )


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
    """Start CLIENT for sparkdash. Its settings stay as they are: without `launch` it runs as before.

    The model loads at the client's first question. A key comes from SPARKDASH_KEY. What follows `--` is the client's.

    \b
    Examples:
      sparkdash launch claude-code
      sparkdash launch codex gpt-oss-120b
      sparkdash launch opencode qwen3-coder -- run "explain this folder"
    """
    from sparkdash.connect.client_setup import prepare_launch
    from sparkdash.connect.clients import find_recipe

    chosen = find_recipe(client)
    path = _program(chosen)
    start_daemon_if_needed(profile)
    place = target_of(profile, None)
    if _lacks_key(place):
        print_note(_get_key(chosen, "launch"))
    start = prepare_launch(chosen.name, chosen.setup(place))
    assert start is not None  # noqa: S101 - _program has looked
    print_note(f"{chosen.title} uses {place.model} at {place.root}.")
    os.execve(path, [*start.argv, *context.obj], {**os.environ, **start.env})  # noqa: S606 - its owner's wish


def _program(recipe: Recipe) -> str:
    """Return the path of the client's program. Raises AdmissionError: not_launchable, client_missing."""
    from sparkdash.connect.clients import RECIPES
    from sparkdash.connect.recipe import GatewayTarget

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
