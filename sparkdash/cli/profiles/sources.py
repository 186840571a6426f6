"""`sparkdash profiles sources`: collections of other owners' recipes, each pinned to a commit.

Owns: what is printed and asked. Must not know git, or how a recipe becomes a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkdash.cli.output.screen import LiveLine, confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.output.tables import format_table
from sparkdash.cli.parameters import AsJson, Yes
from sparkdash.errors import HostError, ProfileError
from sparkdash.units import counted

if TYPE_CHECKING:
    from sparkdash.sources.reading import Change
    from sparkdash.sources.source import Source

DIFF_LINES = 200
"""Lines of a difference that are printed; --json has all."""


class SourceAction(StrEnum):
    """What to do with the sources."""

    LIST = "list"
    ADD = "add"
    UPDATE = "update"
    REMOVE = "remove"


def complete_source(incomplete: str) -> list[str]:
    """Complete the name of a source; a Tab that fails stays silent."""
    from sparkdash.errors import SparkdashError
    from sparkdash.sources.source_file import read_sources

    try:
        return [source.name for source in read_sources() if source.name.startswith(incomplete)]
    except SparkdashError:
        return []


def sources(
    action: Annotated[SourceAction, typer.Argument(help="What to do.")] = SourceAction.LIST,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|URL",
            help="add: spark-arena, eugr, mfellner, or the address of a git repository. Else: a source's name.",
            autocompletion=complete_source,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="add: short name; default: the owner's.")] = None,
    ref: Annotated[
        str | None, typer.Option("--ref", metavar="REF", help="add: branch, tag or commit; default: the newest.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Git collections of recipes and profiles that others publish.

    `add` fetches a collection and pins its newest commit; it is read at that commit until you accept an update. `list`
    shows the sources with their commits. `update` fetches the newest commit of one source or of all, shows what
    changed, and asks: nothing is taken before you agree, profiles that were added before stay as they are, and those
    whose recipe changed are named. `remove` forgets a source and deletes its clone. Nothing of a source is run. Its
    recipes become profiles only by `sparkdash profiles add`.

    \b
    Examples:
      sparkdash profiles sources
      sparkdash profiles sources add eugr
      sparkdash profiles sources add https://github.com/OWNER/recipes --name mine
      sparkdash profiles sources update eugr --yes
      sparkdash profiles sources update --json | jq '.[].changes'
      sparkdash profiles sources remove eugr
    """
    if action is SourceAction.LIST:
        return _list(as_json=as_json)
    if action is SourceAction.UPDATE:
        return _update_all(source, yes=yes, as_json=as_json)
    if source is None:
        raise typer.BadParameter(f"`{action}` needs one", param_hint="NAME|URL")
    if action is SourceAction.ADD:
        return add_source(source, name, ref, as_json=as_json)
    return _remove(source, as_json=as_json)


def add_source(address: str, name: str | None = None, ref: str | None = None, *, as_json: bool = False) -> None:
    """Fetch a collection and pin its newest commit."""
    import re

    from sparkdash.sources import source_file
    from sparkdash.sources.clone import Clone
    from sparkdash.sources.reading import count_recipes
    from sparkdash.sources.source import SOURCE_NAME, Source, default_name, source_refused, source_url

    url, chosen = source_url(address), name or default_name(address)
    if not re.match(SOURCE_NAME, chosen):
        raise typer.BadParameter("up to 40 small letters, digits, dots and dashes", param_hint="--name")
    if ref is not None and not re.match(r"^[A-Za-z0-9_][\w./-]*$", ref):
        raise typer.BadParameter("letters, digits, dots, slashes and dashes", param_hint="--ref")
    if any(source.name == chosen for source in source_file.read_sources()):
        raise source_refused(
            f"There is a source {chosen!r} already.",
            f"`sparkdash profiles sources update {chosen}` takes its newest commit; "
            "--name gives this one another name.",
        )
    try:
        clone, commit = _fetch(chosen, url, ref)
    except HostError:
        Clone(chosen).remove()
        raise
    source = Source(name=chosen, url=url, ref=ref, commit=commit, updated_at=_today())
    found = count_recipes(clone, commit)
    source_file.put_source(source)
    if as_json:
        print_json({"source": source, "recipes": found})
        return
    print_text(f"{chosen}: {counted(found, 'recipe')} at {source.short_commit}.")
    if found:
        print_note(f"`sparkdash profiles search {chosen}` lists them.")
    else:
        print_note(
            "No file of it looks like a recipe or a profile. `sparkdash profiles import FILE` reads single files."
        )


def _list(*, as_json: bool) -> None:
    from sparkdash.sources.clone import Clone
    from sparkdash.sources.source import WELL_KNOWN
    from sparkdash.sources.source_file import read_sources

    known = read_sources()
    here = {source.name: Clone(source.name).has(source.commit) for source in known}
    if as_json:
        print_json([{**source.model_dump(), "fetched": here[source.name]} for source in known])
        return
    rows = [
        (one.name, one.url, one.ref or "default", one.short_commit, one.updated_at, "yes" if here[one.name] else "no")
        for one in known
    ]
    if rows:
        print_text(
            "\n".join(format_table(("source", "address", "follows", "commit", "updated", "fetched"), rows, "<<<<<<"))
        )
    left = [name for name in WELL_KNOWN if name not in here]
    if left:
        print_note(f"Known by name: {', '.join(left)} (`sparkdash profiles sources add {left[0]}`).")


def _update_all(name: str | None, *, yes: bool, as_json: bool) -> None:
    from sparkdash.sources.source_file import find_source, read_sources

    chosen = [find_source(name)] if name else list(read_sources())
    told = [_update(source, yes=yes, as_json=as_json) for source in chosen]
    if as_json:
        print_json(told)
    elif not chosen:
        print_note("There are no sources. `sparkdash profiles sources add eugr` adds one.")


def _remove(name: str, *, as_json: bool) -> None:
    from sparkdash.sources.clone import Clone
    from sparkdash.sources.source_file import remove_source

    remove_source(name)
    Clone(name).remove()
    if as_json:
        print_json({"removed": name})
    else:
        print_text(f"Removed: {name}.")


def _fetch(name: str, url: str, ref: str | None) -> tuple[Any, str]:
    from sparkdash.sources.clone import Clone

    clone, line = Clone(name), LiveLine()
    try:
        return clone, clone.fetch(url, ref, lambda text: line.draw(f"{name}: {text}", f"{name}: fetching"))
    finally:
        line.clear()


def _update(source: Source, *, yes: bool, as_json: bool) -> dict[str, Any]:
    """Update one source; return its facts for programs."""
    from sparkdash.sources import source_file
    from sparkdash.sources.clone import pinned_clone
    from sparkdash.sources.reading import changes

    clone = pinned_clone(source)
    _, commit = _fetch(source.name, source.url, source.ref)
    told = changes(clone, source.commit, commit)
    facts = {"name": source.name, "before": source.commit, "after": commit, "changes": told}
    if commit == source.commit:
        if not as_json:
            print_text(f"{source.name}: nothing new since {source.updated_at} ({source.short_commit}).")
        return facts | {"taken": True, "profiles": []}
    affected = _profiles_of(source, told)
    if not as_json:
        _print_changes(source, told, affected)
    taken = _is_wanted(source, told, yes=yes, as_json=as_json)
    if taken:
        source_file.put_source(source.replace(commit=commit, updated_at=_today()))
    if not as_json:
        print_text(f"{source.name}: {'now' if taken else 'left'} at {(commit if taken else source.commit)[:10]}.")
    return facts | {"taken": taken, "profiles": affected}


def _is_wanted(source: Source, told: Sequence[Change], *, yes: bool, as_json: bool) -> bool:
    if yes or not told:
        return True
    if is_interactive():
        return confirm(f"Take these changes of {source.name}?")
    if as_json:
        return False
    raise ProfileError(
        f"{source.name} has changes that were not confirmed.",
        code="source_unconfirmed",
        hint="Add --yes to take them.",
    )


def _print_changes(source: Source, told: Sequence[Change], affected: Sequence[str]) -> None:
    lines: list[str] = []
    for change in told:
        lines += [f"{change.kind:8} {change.path}", *(f"    {line}" for line in change.diff)]
    print_text(f"{source.name}: {counted(len(told), 'recipe')} changed since {source.short_commit}.")
    print_text("\n".join(lines[:DIFF_LINES]))
    if len(lines) > DIFF_LINES:
        print_note(f"{len(lines) - DIFF_LINES} more lines; --json has all of them.")
    for profile in affected:
        print_note(f"Your profile {profile} was made from a recipe that changed; `profiles add` shows the difference.")


def _profiles_of(source: Source, told: Sequence[Change]) -> list[str]:
    """Return the files in the owner's folder that were made from a changed recipe of this source."""
    from sparkdash.cli.profiles.add import added_profiles

    paths = {change.path for change in told}
    return [file for file, (name, path) in added_profiles().items() if name == source.name and path in paths]


def _today() -> str:
    import datetime

    return datetime.datetime.now().astimezone().date().isoformat()
