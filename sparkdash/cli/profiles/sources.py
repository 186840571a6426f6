"""`sparkdash profiles sources`, `search` and `add`: collections of other owners' recipes, each pinned to a commit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkdash import paths
from sparkdash.cli.output import (
    LiveLine,
    confirm,
    format_table,
    is_interactive,
    print_fitting_table,
    print_json,
    print_note,
    print_text,
)
from sparkdash.cli.parameters import AsJson, Yes
from sparkdash.errors import HostError, ProfileError, SparkdashError
from sparkdash.units import DASH, counted

if TYPE_CHECKING:
    from sparkdash.catalog.importers.values import Imported
    from sparkdash.sources import Entry, RecipeChange, Source


HEAD = ("recipe", "model", "boxes", "about")
ALIGN = "<<><"
LEAST = ("about", "model", "boxes")
ABOUT = 60


def search_profiles(
    words: Annotated[
        list[str], typer.Argument(metavar="WORD…", help="Words of its name, model or description; all must occur.")
    ],
    as_json: AsJson = False,
) -> None:
    """Find recipes and profiles in your sources.

    Reads what was fetched before; the network is used only for a source whose clone is missing.

    \b
    Examples:
      sparkdash profiles search gemma
      sparkdash profiles search qwen3.6 dflash
      sparkdash profiles search eugr --json | jq -r '.[].name'
    """
    from dataclasses import asdict

    from sparkdash.sources import entries, matching, read_sources

    sources = read_sources()
    if not sources:
        raise ProfileError(
            "There are no sources to search.",
            code="source_unknown",
            hint="`sparkdash profiles sources add eugr` or `… add spark-arena` adds one.",
        )
    found = matching((entry for source in sources for entry in entries(source)), words)
    if as_json:
        print_json([{"address": entry.address, **asdict(entry)} for entry in found])
    elif found:
        rows = [
            (one.address, one.model or DASH, str(one.nodes) if one.nodes else DASH, (one.about or DASH)[:ABOUT])
            for one in found
        ]
        print_fitting_table(HEAD, rows, ALIGN, LEAST)
        print_note(f"`sparkdash profiles add {found[0].address}` makes a profile of it.")
    else:
        print_note(f"Nothing matches {' '.join(words)!r} in {counted(len(sources), 'source')}.")
        print_note("`sparkdash profiles sources add ADDRESS` follows a further one.")
        raise typer.Exit(1)


_ORIGIN = re.compile(r"^# (?:Imported from|Copied from) ([\w.-]+): (.+) at [0-9a-f]{40,64}\b")


def complete_entry(incomplete: str) -> list[str]:
    from sparkdash.sources import Clone, entries, read_sources

    try:
        fetched = [source for source in read_sources() if Clone(source.name).has(source.commit)]
        found = [entry.address for source in fetched for entry in entries(source)]
    except SparkdashError:
        return []
    return [address for address in found if address.startswith(incomplete)]


def add_profile(
    address: Annotated[
        str, typer.Argument(metavar="SOURCE/NAME", help="As `profiles search` prints.", autocompletion=complete_entry)
    ],
    name: Annotated[str | None, typer.Option("--name", help="The profile's name.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the profile; write nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a profile of a recipe in a source, in your profiles' folder.

    Comments in the file say where it comes from and what could not be converted. If the file exists, the difference is
    shown first. Nothing of the source is run, and no weights are fetched: `sparkdash pull` does that.

    \b
    Examples:
      sparkdash profiles add eugr/gemma4-26b-a4b
      sparkdash profiles add spark-arena/qwen3.6-27b-fp8-vllm --name qwen3.6-27b
      sparkdash profiles add eugr/glm-4.7-flash-awq --dry-run
    """
    from sparkdash.catalog import importers
    from sparkdash.cli.profiles.check import end_import, finding_facts, import_findings
    from sparkdash.sources import entry_text, find_source

    source = find_source(address.partition("/")[0])
    entry, text = entry_text(source, address.partition("/")[2])
    imported, texts = _converted(source, entry, text, name)
    loaded = importers.load_imported(texts)
    problems, told = tuple(map(str, loaded.problems)), import_findings(loaded)
    places = {profile: paths.config_dir() / "profiles" / f"{profile}.yaml" for profile in texts}
    written = [] if dry_run else [str(places[one]) for one in texts if _write(places[one], texts[one], yes=yes)]
    if as_json:
        report = importers.import_report(imported) if imported else {"form": "profile", "profiles": list(texts)}
        print_json(
            {"source": source.name, "path": entry.path, "commit": source.commit, "written": written}
            | report
            | {"problems": problems, "findings": [finding_facts(one) | {"file": None} for one in told], "texts": texts}
        )
    elif dry_run:
        print_text("---\n".join(texts.values()), nl=False)
    else:
        _print_outcome(imported, list(texts), written, refused=bool(problems))
    end_import(told, problems, "recipe", as_json=as_json)


def added_profiles() -> dict[str, tuple[str, str]]:
    return {file: (origin[1], origin[2]) for file, origin in profile_origins(_ORIGIN)}


def profile_origins(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the names of the owner's profile files whose first line matches, each with the match."""
    folder = paths.config_dir() / "profiles"
    for file in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
        with suppress(OSError, UnicodeDecodeError):
            if origin := pattern.match(paths.read_small_text(file).partition("\n")[0]):
                yield file.name, origin


def _converted(source: Source, entry: Entry, text: str, name: str | None) -> tuple[Imported | None, dict[str, str]]:
    from sparkdash.catalog import importers

    origin = f"{source.name}: {entry.path} at {source.commit}"
    if entry.own:
        if name:
            raise ProfileError(
                f"{entry.address} is a profile of sparkdash and keeps its name.",
                code="import_refused",
                hint="Write a profile that extends it, if you want another name.",
            )
        return None, {_own_name(text): f"# Copied from {origin}.\n{text}"}
    stem = re.sub(r"[^a-z0-9.]+", "-", entry.name.rpartition("/")[2].lower()).strip("-.") or "imported"
    imported = importers.import_profiles(text, name or stem)
    return imported, {one["profile"]: importers.yaml_text(one, imported, origin) for one in imported.profiles}


def _own_name(text: str) -> str:
    from sparkdash.catalog.importers.values import parse_bounded_yaml

    found = str(parse_bounded_yaml(text).get("profile"))
    if not re.fullmatch(r"[\w.-]+", found) or found.startswith("."):
        raise ProfileError(
            f"The source's profile has the name {found!r}, which cannot be a file.", code="import_refused"
        )
    return found


def _write(place: Path, text: str, *, yes: bool) -> bool:
    """Write the file unless it holds the text already; ask before another content is replaced. Raises ProfileError."""
    try:
        before = paths.read_small_text(place) if place.exists() else None
        if before == text:
            print_note(f"{place} is the same already.")
            return False
        if before is not None and not _may_replace(place, before, text, yes=yes):
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProfileError(f"{place} cannot be read or written: {why}.", code="import_refused") from None
    print_note(f"Wrote {place}")
    return True


def _may_replace(place: Path, before: str, text: str, *, yes: bool) -> bool:
    from sparkdash.sources import diff_lines

    print_note("\n".join([f"{place} would change:", *diff_lines(before, text)]))
    if yes:
        return True
    if not is_interactive():
        raise ProfileError(
            f"{place} exists and differs.",
            code="import_refused",
            hint="Add --yes to replace it, or --name for another.",
        )
    return confirm("Replace it?")


def _print_outcome(imported: Imported | None, names: list[str], written: list[str], *, refused: bool) -> None:
    from sparkdash.catalog import importers

    for remark in imported.remarks if imported else ():
        print_note(f"  {remark}")
    if imported and (lines := importers.settings_text(imported)):
        print_text(lines, nl=False)
    if written and not refused:
        print_note(f"`sparkdash pull {names[0]}` fetches what it needs, `sparkdash use {names[0]}` starts it.")


DIFF_LINES = 200
"""Lines of a difference that are printed; --json has all."""


class SourceAction(StrEnum):
    """Actions on the sources."""

    LIST = "list"
    ADD = "add"
    UPDATE = "update"
    REMOVE = "remove"


def complete_source(incomplete: str) -> list[str]:
    from sparkdash.sources import read_sources

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
    from sparkdash import sources as source_file
    from sparkdash.sources import SOURCE_NAME, Clone, Source, count_recipes, default_name, source_refused, source_url

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
    from sparkdash.sources import WELL_KNOWN, Clone, read_sources

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
    from sparkdash.sources import find_source, read_sources

    chosen = [find_source(name)] if name else list(read_sources())
    told = [_update(source, yes=yes, as_json=as_json) for source in chosen]
    if as_json:
        print_json(told)
    elif not chosen:
        print_note("There are no sources. `sparkdash profiles sources add eugr` adds one.")


def _remove(name: str, *, as_json: bool) -> None:
    from sparkdash.sources import Clone, remove_source

    remove_source(name)
    Clone(name).remove()
    if as_json:
        print_json({"removed": name})
    else:
        print_text(f"Removed: {name}.")


def _fetch(name: str, url: str, ref: str | None) -> tuple[Any, str]:
    from sparkdash.sources import Clone

    clone, line = Clone(name), LiveLine()
    try:
        return clone, clone.fetch(url, ref, lambda text: line.draw(f"{name}: {text}", f"{name}: fetching"))
    finally:
        line.clear()


def _update(source: Source, *, yes: bool, as_json: bool) -> dict[str, Any]:
    from sparkdash import sources as source_file
    from sparkdash.sources import changes, pinned_clone

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


def _is_wanted(source: Source, told: Sequence[RecipeChange], *, yes: bool, as_json: bool) -> bool:
    if yes or not told:
        return True
    if is_interactive():
        return confirm(f"Take these changes of {source.name}?")
    if as_json:
        return False
    raise ProfileError(
        f"{source.name} has changes that were not confirmed.", code="source_unconfirmed", hint="Add --yes to take them."
    )


def _print_changes(source: Source, told: Sequence[RecipeChange], affected: Sequence[str]) -> None:
    lines: list[str] = []
    for change in told:
        lines += [f"{change.kind:8} {change.path}", *(f"    {line}" for line in change.diff)]
    print_text(f"{source.name}: {counted(len(told), 'recipe')} changed since {source.short_commit}.")
    print_text("\n".join(lines[:DIFF_LINES]))
    if len(lines) > DIFF_LINES:
        print_note(f"{len(lines) - DIFF_LINES} more lines; --json has all of them.")
    for profile in affected:
        print_note(f"Your profile {profile} was made from a recipe that changed; `profiles add` shows the difference.")


def _profiles_of(source: Source, told: Sequence[RecipeChange]) -> list[str]:
    changed = {(source.name, change.path) for change in told}
    return [file for file, origin in added_profiles().items() if origin in changed]


def _today() -> str:
    import datetime

    return datetime.datetime.now().astimezone().date().isoformat()
