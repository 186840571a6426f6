"""`sparkdash profiles new`: propose a first profile for a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkdash import paths
from sparkdash.cli.output import print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson
from sparkdash.errors import ProfileError, writing

if TYPE_CHECKING:
    from sparkdash.cli.profiles.proposal import CheckedProposal
    from sparkdash.domain.weights import WeightFacts
    from sparkdash.settings import Settings


class EngineChoice(StrEnum):
    """Engines for which a profile can be proposed."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"


def new_profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="owner/name on the hub, a model's folder, or a GGUF file.")
    ],
    engine: Annotated[
        EngineChoice | None, typer.Option("--engine", help="Default: llamacpp for GGUF files, vllm for all others.")
    ] = None,
    context: Annotated[
        int | None, typer.Option("--context", min=1, metavar="TOKENS", help="Default: the model's own, or what fits.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The profile's name.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="The container image.")] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", metavar="VERSION", help="Version of the engine in that image.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write it to your profiles' folder.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Never use the network.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose a profile for MODEL, with a reason for every flag.

    Shows the model's memory need by term. Reads config.json and the headers of the weights, not the weights. For a
    model outside the Hugging Face cache, it reads the headers from the hub. Prints YAML that `profiles check` accepts;
    --write puts it into your profiles' folder and overwrites nothing.

    \b
    Examples:
      sparkdash profiles new Qwen/Qwen3-Coder-30B-A3B-Instruct
      sparkdash profiles new ~/models/gpt-oss-120b --context 65536 --write
      sparkdash profiles new ./MiniMax-M2.7.gguf --image localhost/llama:cuda13
    """
    from sparkdash import settings
    from sparkdash.cli.profiles.proposal import propose_checked
    from sparkdash.domain.profile import EngineKind
    from sparkdash.engines.proposal import OwnerChoices

    known = settings.load_settings()
    ref, facts = _model(model, known, offline=offline)
    wish = OwnerChoices(context, image, engine_version)
    made = propose_checked(name or model, ref, facts, EngineKind(_engine(engine, facts)), wish, known)
    place = _write(made) if write else None
    if as_json:
        print_json(_json(made, place))
    elif place is None:
        print_text(made.text, nl=False)
    for warning in made.warnings:
        print_note(f"warning: {warning}")
    if place is not None and not as_json:
        from sparkdash.cli.output import terminal_width
        from sparkdash.cli.profiles.page import need_lines

        print_text("\n".join(need_lines(made.need, terminal_width())))
        print_note(f"Wrote {place}; `sparkdash use {made.name}` starts it.")


def _model(model: str, known: Settings, *, offline: bool) -> tuple[dict[str, str], WeightFacts]:
    """Return the profile's reference to the model and the model's facts, from this box or else the hub."""
    from sparkdash.catalog.catalog import nearest
    from sparkdash.catalog.checkpoint import weights
    from sparkdash.domain.profile import ModelRef

    home = known.hf_home.expanduser()
    path = Path(model).expanduser()
    if path.exists() or model.startswith(("/", ".", "~")) or model.count("/") > 1:
        if not path.exists():
            raise ProfileError(f"{model} is not on this box.", code="weights_missing")
        whole = path.absolute()
        if path.is_file() and (parts := weights.gguf_files(whole)):
            whole = parts[0]  # llama.cpp finds the other parts of a split model from the first
        return {"path": str(whole)}, weights.read_weight_facts(whole)
    try:
        return {"hf": model}, weights.read_weight_facts(weights.locate_checkpoint(ModelRef(hf=model), home))
    except ProfileError as missing:
        if "/" not in model:
            why = "it is not an owner/name of the hub"
            raise ProfileError(f"{model} is not on this box, and {why}.", code="weights_missing") from None
        if offline:
            close = nearest(model, weights.cached_repositories(home))
            asked = "Leave out --offline to read the headers from the hub."
            missing.hint = f"Did you mean {' or '.join(close)}?" if close else asked
            raise
        from sparkdash.host import hub_download

        endpoint = hub_download.hub_url()
        print_note(f"{missing.message} Reading its headers from the hub.")
        return {"hf": model}, hub_download.read_weight_headers(model, endpoint=endpoint)


def _engine(chosen: EngineChoice | None, facts: WeightFacts) -> EngineChoice:
    own = EngineChoice.LLAMACPP if facts.format == "gguf" else EngineChoice.VLLM
    if chosen is not None and (chosen is EngineChoice.LLAMACPP) != (own is EngineChoice.LLAMACPP):
        raise ProfileError(
            f"{facts.origin} is {facts.format}, which {chosen.value} does not serve.",
            code="wrong_format",
            hint=f"Leave --engine out, or use --engine {own.value}.",
        )
    return chosen or own


def _write(made: CheckedProposal) -> Path:
    """Write the profile to the owner's folder. Raises ProfileError `profile_exists`."""
    from sparkdash.cli.local import configured_catalog

    place = paths.config_dir() / "profiles" / f"{made.name}.yaml"
    others = configured_catalog()
    if made.name in others.names() or place.exists():
        where = others.find(made.name).source if made.name in others.names() else place
        raise ProfileError(
            f"The profile {made.name} exists already: {where}.",
            code="profile_exists",
            hint="Choose another name with --name.",
        )
    with writing(place, "profile_exists", ProfileError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(made.text, encoding="utf-8")
    return place


def _json(made: CheckedProposal, place: Path | None) -> dict[str, Any]:
    return {
        "profile": made.profile.replace(source="" if place is None else str(place)),
        "yaml": made.text,
        "facts": made.facts,
        "need": made.need,
        "warnings": made.warnings,
        "written": None if place is None else str(place),
    }
