"""`sparkdash profiles`: list, show and check profiles."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import print_json, print_note, print_table, print_text, terminal_width
from sparkdash.cli.parameters import AsJson, ProfileName
from sparkdash.errors import DaemonError, ProfileError
from sparkdash.units import counted

if TYPE_CHECKING:
    from sparkdash.cli.profiles.images import ProfileImage
    from sparkdash.domain.profile import Profile, ProfileSummary
    from sparkdash.domain.state import Snapshot
    from sparkdash.host.inventory import ProfileStock

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def profiles(context: typer.Context, as_json: AsJson = False) -> None:
    """List, show and check profiles: how each model is run.

    Without a command: list every profile with its memory need, its best published decode rate, its state, and the
    size of its image and weights on disk, or how they are got. A state of "can be pulled" or "can be built" names the
    next command; "needs 2 boxes" is of a profile for more boxes than are known. Columns that do not fit the terminal
    are left out; --json prints everything.

    \b
    Examples:
      sparkdash profiles
      sparkdash profiles --json | jq -r '.profiles[].name'
      sparkdash profiles show gpt-oss-120b
      sparkdash profiles check ~/profiles
    """
    if context.invoked_subcommand is None:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    from sparkdash.cli.profiles.images import ALIGN, HEAD, LEAST, image_states, list_row, runtime_note
    from sparkdash.domain.phrases import by_family
    from sparkdash.host.local_weights import other_cache
    from sparkdash.nodes.node_file import nodes_file, read_nodes
    from sparkdash.settings import load_settings

    summaries, problems, world = _known()
    here = _here(summaries, world)
    runtime = load_settings().runtime
    images = image_states(summaries, here, containerised=runtime != "process")
    if as_json:
        return print_json({"profiles": summaries, "problems": problems, "here": here, "images": images})
    boxes = 1 + len(read_nodes(nodes_file()) if world is None else world.nodes)
    rows = [
        list_row(one, world, here.get(one.name), images.get(one.name), runtime, boxes) for one in by_family(summaries)
    ]
    print_table(HEAD, rows, ALIGN, LEAST)
    installed = runtime == "process" or shutil.which(runtime) is not None
    if note := runtime_note(images.values(), runtime, installed=installed):
        print_note(note)
    lacking = [one.weights for one in here.values() if one.weights is not None and not one.weights.here]
    if lacking and (note := other_cache(load_settings().hf_home.expanduser())):
        print_note(note)
    for one in {one.ref: one for one in lacking if one.broken}.values():
        print_note(f"Weights that are not whole: {one.lacks}; `sparkdash pull NAME --offline` names each.")
    if any(summary.published_decode_tok_s is not None for summary in summaries):
        print_note("tok/s: the best published rate, not measured here; `sparkdash profiles show` names its source.")
    if problems:
        print_note(f"{counted(len(problems), 'problem')} in profile files; see `sparkdash profiles check`.")
    return None


@app.command("show")
def show(profile: ProfileName, as_json: AsJson = False) -> None:
    """Show one whole profile, with the source of each figure.

    Shows its memory need by term, and its published figures. The need is computed here, from the profile and the
    headers of its weights.

    \b
    Examples:
      sparkdash profiles show gpt-oss-120b
      sparkdash profiles show qwen3-coder-30b-nvfp4/eagle3 --json
    """
    from sparkdash.cli.local import estimate_need, find_profile
    from sparkdash.cli.profiles.page import profile_lines

    (found, _), image = find_profile(profile), None
    takes = estimate_need(found)
    if found.image is not None and found.fetches_nothing is None:
        image = _image(found)
    if as_json:
        print_json(found.model_dump(mode="json") | {"need": takes, "image_state": image})
    else:
        print_text("\n".join(profile_lines(found, takes, terminal_width(), image)))


@app.command("check")
def check(
    path: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Folders or files; default: all profiles in use.")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules instead.")] = False,
    rule: Annotated[
        str | None, typer.Option("--rule", metavar="NAME", help="Show one rule's evidence instead.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a profile instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check profile files: every problem, with its file and line.

    Includes the findings of the rules. Exits 2 with a problem or an error, and 0 with warnings only. The JSON Schema
    is for editors that check and complete YAML.

    \b
    Examples:
      sparkdash profiles check
      sparkdash profiles check ./my-profiles my-model.yaml
      sparkdash profiles check --json | jq '(.error // .).findings'
      sparkdash profiles check --rule enforce-eager
      sparkdash profiles check --schema > profile.schema.json
    """
    if rules or rule:
        return _print_rules(rule, as_json=as_json)
    if schema:
        from sparkdash.catalog.jsonschema import profile_schema

        return print_json(profile_schema())
    return _check(path or (), as_json=as_json)


def _check(path: Sequence[Path], *, as_json: bool) -> None:
    from sparkdash.cli.local import configured_catalog
    from sparkdash.cli.profiles.check import check_catalog, finding_facts, finding_line
    from sparkdash.engines.rule import Severity
    from sparkdash.rules import RULES

    for place in path:
        if not place.expanduser().exists():
            raise ProfileError(f"{place}: no such folder or file.", code="unreadable")
    found = configured_catalog(path)
    told = check_catalog(found)
    if path and not (found.profiles or told):
        raise ProfileError(f"{path[0]}: no profile; their files end in .yaml or .yml.", code="no_profile")
    findings = tuple(map(finding_facts, told))
    problems = tuple(finding_line(one) for one in told if one.level is Severity.ERROR)
    warnings = tuple(finding_line(one) for one in told if one.level is Severity.WARNING)
    if not as_json:
        for warning in warnings:
            print_note(f"warning: {warning}")
    if problems:
        raise ProfileError(
            f"{counted(len(problems), 'problem')} in profile files.",
            problems=problems,
            findings=findings,
            hint=_RULES if any(one.rule in RULES for one in told) else None,
        )
    if as_json:
        print_json({"profiles": list(found.profiles), "problems": [], "warnings": warnings, "findings": findings})
    else:
        more = f"; {counted(len(warnings), 'warning')}" if warnings else ""
        print_text(f"{counted(len(found.profiles), 'profile')}, no problems{more}.")


_RULES = "`sparkdash profiles check --rule NAME` shows the evidence of a rule; `silence: {NAME: reason}` overrules it."


def _print_rules(name: str | None, *, as_json: bool) -> None:
    from sparkdash.cli.profiles.check import all_rules, one_rule

    told = one_rule(name) if name else all_rules()
    if as_json:
        print_json(told)
    elif name:
        print_text("\n".join(f"{label:<10}{text}" for label, text in told[0].items()))
    else:
        rows = [(rule["name"], rule["level"], rule["about"]) for rule in told]
        print_table(("rule", "level", "finds"), rows, "<<<")


def _known() -> tuple[tuple[ProfileSummary, ...], tuple[str, ...], Snapshot | None]:
    from sparkdash.client.client import Client

    try:
        with Client() as client:
            listed, world = client.profiles(), client.state()  # the list first: for it the daemon looks at the files
    except DaemonError as error:
        if error.code != DaemonError.default_code:
            raise
        from sparkdash.cli.local import profile_summaries

        return (*profile_summaries(), None)
    return listed.profiles, listed.problems, world


def _image(profile: Profile) -> ProfileImage:
    from sparkdash import settings
    from sparkdash.cli.local import local_images, make_runtime
    from sparkdash.cli.profiles.images import profile_image

    known = local_images(make_runtime(settings.load_settings()), [profile.image or ""]).get(profile.image or "")
    return profile_image(profile, here=known.here if known else None)


def _here(summaries: Sequence[ProfileSummary], world: Snapshot | None) -> dict[str, ProfileStock]:
    from sparkdash import settings
    from sparkdash.cli import local

    if world is not None and (world.daemon.simulated or not local.on_this_box(world)):
        return {}
    known = settings.load_settings()
    return local.local_stock(summaries, local.make_runtime(known), known)
