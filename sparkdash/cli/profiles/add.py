"""`sparkdash profiles add`: make a profile of a recipe in a source.

Owns: where the profile is written, its first line, the question before a file is replaced. Must not know git, or any
format of recipes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash import paths
from sparkdash.cli.output.screen import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, Yes
from sparkdash.errors import ProfileError
from sparkdash.units import counted

if TYPE_CHECKING:
    from sparkdash.catalog.importers import Imported
    from sparkdash.sources.collection import Entry
    from sparkdash.sources.source import Source

_ORIGIN = re.compile(r"^# (?:Imported from|Copied from) ([\w.-]+): (.+) at [0-9a-f]{40,64}\b")


def complete_entry(incomplete: str) -> list[str]:
    """Complete SOURCE/NAME from the clones in the cache; a Tab that fails stays silent."""
    from sparkdash.errors import SparkdashError
    from sparkdash.sources.clone import Clone
    from sparkdash.sources.reading import entries
    from sparkdash.sources.source_file import read_sources

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
    from sparkdash.catalog.importers import write
    from sparkdash.cli.profiles.check import finding_facts, import_findings, import_line
    from sparkdash.sources.reading import entry_text
    from sparkdash.sources.source_file import find_source

    source = find_source(address.partition("/")[0])
    entry, text = entry_text(source, address.partition("/")[2])
    imported, texts = _converted(source, entry, text, name)
    loaded = write.load_imported(texts)
    problems, told = tuple(map(str, loaded.problems)), import_findings(loaded)
    places = {profile: paths.config_dir() / "profiles" / f"{profile}.yaml" for profile in texts}
    written = [] if dry_run else [str(places[one]) for one in texts if _write(places[one], texts[one], yes=yes)]
    if as_json:
        report = write.import_report(imported) if imported else {"form": "profile", "profiles": list(texts)}
        print_json(
            {"source": source.name, "path": entry.path, "commit": source.commit, "written": written}
            | report
            | {"problems": problems, "findings": [finding_facts(one) | {"file": None} for one in told], "texts": texts}
        )
    elif dry_run:
        print_text("---\n".join(texts.values()), nl=False)
    else:
        _print_outcome(imported, list(texts), written, refused=bool(problems))
    for one in () if as_json else told:
        print_note(import_line(one))
    if problems and as_json:
        raise typer.Exit(ProfileError.exit_code)
    if problems:
        raise ProfileError(
            f"{counted(len(problems), 'problem')} to fix before it loads.",
            problems=problems,
            hint="The recipe does not contain the missing values.",
        )


def added_profiles() -> dict[str, tuple[str, str]]:
    """Return the owner's profile files that came from sources, by file name: source and path of the recipe."""
    found = {}
    folder = paths.config_dir() / "profiles"
    for file in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
        try:
            with file.open(encoding="utf-8") as opened:
                origin = _ORIGIN.match(opened.readline(1000))
        except (OSError, UnicodeDecodeError):
            continue
        if origin:
            found[file.name] = (origin[1], origin[2])
    return found


def _converted(source: Source, entry: Entry, text: str, name: str | None) -> tuple[Imported | None, dict[str, str]]:
    """Return the import's result (None for a profile, which is copied) and the files' texts by profile."""
    from sparkdash.catalog import importers
    from sparkdash.catalog.importers import write

    origin = f"{source.name}: {entry.path} at {source.commit}"
    if entry.own:
        if name:
            raise ProfileError(
                f"{entry.address} is a profile of sparkdash and keeps its name.",
                code="import_refused",
                hint="Write a profile that extends it, if you want another name.",
            )
        return None, {_own_name(text): f"# Copied from {origin}.\n{text}"}
    imported = importers.import_profiles(text, name or _plain(entry.name.rpartition("/")[2]))
    return imported, {one["profile"]: write.yaml_text(one, imported, origin) for one in imported.profiles}


def _own_name(text: str) -> str:
    from sparkdash.catalog.importers.bounded_yaml import parse_bounded_yaml

    found = str(parse_bounded_yaml(text).get("profile"))
    if not re.fullmatch(r"[\w.-]+", found) or found.startswith("."):
        raise ProfileError(
            f"The source's profile has the name {found!r}, which cannot be a file.", code="import_refused"
        )
    return found


def _plain(stem: str) -> str:
    """Return a recipe's file name as a profile's name."""
    return re.sub(r"[^a-z0-9.]+", "-", stem.lower()).strip("-.") or "imported"


def _write(place: Path, text: str, *, yes: bool) -> bool:
    """Write the file unless it holds the text already; ask before another content is replaced. Raises ProfileError."""
    try:
        before = place.read_text("utf-8") if place.exists() else None
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
    from sparkdash.sources.reading import diff_lines

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
    from sparkdash.catalog.importers import write

    for remark in imported.remarks if imported else ():
        print_note(f"  {remark}")
    if imported and (lines := write.settings_text(imported)):
        print_text(lines, nl=False)
    if written and not refused:
        print_note(f"`sparkdash pull {names[0]}` fetches what it needs, `sparkdash use {names[0]}` starts it.")
