"""`sparkdash profiles import` and `export`: convert other tools' files to profiles and back."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, ProfileName
from sparkdash.errors import ProfileError, writing
from sparkdash.paths import read_small_file

if TYPE_CHECKING:
    from sparkdash.catalog.importers.values import Imported
    from sparkdash.domain.container import ContainerSpec
    from sparkdash.domain.profile import Profile

STDIN = "-"
MAX_BYTES = 1_000_000


def import_profiles(
    source: Annotated[str, typer.Argument(metavar="FILE|-", help="A file, or - for stdin.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE|DIR", help="Write there instead of stdout.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The profile's name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make profiles from other tools' files.

    Reads a podman or docker command, a script, a compose file, a quadlet, a sparkrun or eugr recipe, a llama-swap
    configuration, or llama.cpp's presets (models.ini). Nothing is run, and no environment variable is filled in.
    Comments above each profile list what could not be converted. Flags that the engine does not have are named on
    stderr. Exits 2 if a profile must be corrected before it loads.

    \b
    Examples:
      sparkdash profiles import start_qwen.sh
      sparkdash profiles import recipe.yaml -o ~/.config/sparkdash/profiles/
      curl -s URL | sparkdash profiles import - --name my-model
    """
    from sparkdash.catalog import importers
    from sparkdash.cli.profiles.check import end_import, finding_facts, import_findings

    imported = _read(source, name)
    origin = "stdin" if source == STDIN else Path(source).resolve().name
    texts = {one["profile"]: importers.yaml_text(one, imported, origin) for one in imported.profiles}
    loaded = importers.load_imported(texts)
    problems, told = tuple(map(str, loaded.problems)), import_findings(loaded)
    if as_json:
        facts = [{**finding_facts(one), "file": None} for one in told]
        print_json(importers.import_report(imported) | {"problems": problems, "findings": facts})
    if output is not None:
        _write(texts, output.expanduser(), force=force)
    elif not as_json:
        print_text("---\n".join(texts.values()), nl=False)
    if not as_json and (settings := importers.settings_text(imported)):
        print_text(settings, nl=False)
    end_import(told, problems, as_json=as_json)


class ExportFormat(StrEnum):
    """Formats that `profiles export` can print."""

    PODMAN = "podman"
    QUADLET = "quadlet"


def export_profile(
    profile: ProfileName,
    form: Annotated[ExportFormat, typer.Option("--as", help="Output format.")] = ExportFormat.PODMAN,
) -> None:
    """Print PROFILE as a podman command or a quadlet unit.

    \b
    Examples:
      sparkdash profiles export gpt-oss-120b --as podman
      sparkdash profiles export gpt-oss-120b --as quadlet > oss.container
    """
    from sparkdash.cli.local import export_spec
    from sparkdash.cli.profiles.check import file_warnings

    found, spec = export_spec(profile)
    for text in file_warnings(found.name):
        print_note(text)
    if found.nodes > 1:
        raise ProfileError(
            f"{found.name} runs on {found.nodes} nodes, which {form.value} cannot say.",
            code="export_refused",
            hint=f"`sparkdash use {found.name} --dry-run` prints each node's command.",
        )
    print_text(_exported(form, found, spec))


def _exported(form: ExportFormat, profile: "Profile", spec: "ContainerSpec") -> str:
    from sparkdash.catalog.quadlet_unit import left_out, quadlet_unit
    from sparkdash.host.podman.argv import PODMAN, run, shell

    if form is ExportFormat.QUADLET:
        return quadlet_unit(profile, spec)
    return f"{left_out(profile)}\n{shell(run(PODMAN, spec))}"


def _read(source: str, name: str | None) -> "Imported":
    from sparkdash.catalog import importers

    if source == STDIN:
        return importers.import_profiles(_text(sys.stdin.buffer.read(MAX_BYTES), "stdin"), name)
    path = Path(source).expanduser()
    try:
        text = _text(read_small_file(path, MAX_BYTES), str(path))
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}.", code="import_refused") from None
    return importers.import_profiles(text, name, str(path.resolve().parent))


def _text(data: bytes, what: str) -> str:
    if not data.strip():
        raise ProfileError(f"{what} is empty.", code="import_refused")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ProfileError(f"{what} is not UTF-8 text.", code="import_refused") from None


def _write(texts: dict[str, str], output: Path, *, force: bool) -> None:
    """Write one file per profile into a folder, or a single profile into a file; write nothing if a file exists.

    A missing path counts as a folder, unless it has the suffix of a profile file.
    """
    from sparkdash.catalog.load import SUFFIXES

    folder = output.is_dir() or not (output.exists() or output.suffix in SUFFIXES)
    if len(texts) > 1 and not folder:
        raise ProfileError(
            f"{len(texts)} profiles ({', '.join(texts)}) do not fit into one file, {output}.",
            code="import_refused",
            hint="Give a folder.",
        )
    places = {output / f"{name}.yaml" if folder else output: text for name, text in texts.items()}
    _must_be_free(places, force=force)
    for place, text in places.items():
        with writing(place, "import_refused", ProfileError):
            if folder:
                output.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        print_note(f"Wrote {place}")


def _must_be_free(places: Iterable[Path], *, force: bool) -> None:
    taken = [str(place) for place in places if place.exists()]
    if taken and not force:
        raise ProfileError(
            f"Files exist already: {', '.join(taken)}.", code="import_refused", hint="Use --force to overwrite."
        )
