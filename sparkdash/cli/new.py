"""`sparkdash profiles new`: a first profile for a model that has none.

Owns: finding the model, the profile's name and file, and what is printed. Must not know: which flags an engine wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sparkdash.cli.parameters import AsJson
from sparkdash.cli.screen import emit, tell
from sparkdash.errors import ProfileError
from sparkdash.units import DASH, GIB, gib, tokens

if TYPE_CHECKING:
    from sparkdash.domain.need import Need
    from sparkdash.domain.profile import Profile
    from sparkdash.domain.weights import WeightFacts
    from sparkdash.engines.proposal import Box, Wish
    from sparkdash.rules import Finding
    from sparkdash.settings import Settings

HEAD_COLUMNS = 108


class Engine(StrEnum):
    """What a profile can be proposed for."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"


class Proposed(NamedTuple):
    """One proposal, tried out."""

    name: str
    text: str
    profile: Profile
    facts: WeightFacts
    need: Need
    warnings: tuple[str, ...]


def new_profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="owner/name on the hub, a model's folder, or a GGUF file.")
    ],
    engine: Annotated[
        Engine | None, typer.Option("--engine", help="Else llamacpp for GGUF files, vllm for all others.")
    ] = None,
    context: Annotated[
        int | None, typer.Option("--context", min=1, metavar="TOKENS", help="Else the model's own, or what fits.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The profile's name.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="The container image.")] = None,
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", metavar="VERSION", help="Of the engine in that image.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write it where your profiles are.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no network, whatever is missing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose a profile for MODEL: its flags with their reasons, and what it needs of the memory, term by term.

    Reads config.json and the headers of the weights, no weights. A model that is not in the Hugging Face cache is asked
    for at the hub, headers only. Prints YAML that `profiles check` accepts; --write puts it into your profiles' folder and
    overwrites nothing.

    \b
    Examples:
      sparkdash profiles new Qwen/Qwen3-Coder-30B-A3B-Instruct
      sparkdash profiles new ~/models/gpt-oss-120b --context 65536 --write
      sparkdash profiles new ./MiniMax-M2.7.gguf --image localhost/llama:cuda13
    """
    from sparkdash import settings
    from sparkdash.engines.proposal import Wish

    known = settings.load()
    ref, facts = _model(model, known, offline=offline)
    wish = Wish(context, image, engine_version)
    made = _proposed(name or model, ref, facts, _engine(engine, facts), wish, known)
    place = _write(made) if write else None
    if as_json:
        emit(_json(made, place))
    elif place is None:
        typer.echo(made.text, nl=False)
    for warning in made.warnings:
        tell(f"warning: {warning}")
    if place is not None and not as_json:
        from sparkdash.cli.profile_page import needed
        from sparkdash.cli.screen import width

        typer.echo("\n".join(needed(made.need, width())))
        tell(f"Wrote {place}; `sparkdash use {made.name}` starts it.")


def _model(model: str, known: Settings, *, offline: bool) -> tuple[dict[str, str], WeightFacts]:
    """How the profile names the model, and its facts: from this box, else from the hub."""
    from sparkdash.catalog import weights
    from sparkdash.catalog.catalog import nearest
    from sparkdash.domain.profile import ModelRef

    home = known.hf_home.expanduser()
    path = Path(model).expanduser()
    if path.exists() or model.startswith(("/", ".", "~")) or model.count("/") > 1:
        if not path.exists():
            raise ProfileError(f"{model} is not on this box.", code="weights_missing")
        return {"path": str(path.absolute())}, weights.read(path.absolute())
    try:
        return {"hf": model}, weights.read(weights.locate(ModelRef(hf=model), home))
    except ProfileError as missing:
        if offline:
            if close := nearest(model, weights.cached(home)):
                missing.hint = f"Did you mean {' or '.join(close)}?"
            raise
        from sparkdash.host import hub_headers

        tell(f"{missing.message} Asking the hub for its headers.")
        return {"hf": model}, hub_headers.read(model)


def _engine(chosen: Engine | None, facts: WeightFacts) -> Engine:
    own = Engine.LLAMACPP if facts.format == "gguf" else Engine.VLLM
    if chosen is not None and (chosen is Engine.LLAMACPP) != (own is Engine.LLAMACPP):
        raise ProfileError(
            f"{facts.origin} is {facts.format}, which {chosen.value} does not serve.",
            code="wrong_format",
            hint=f"Leave --engine out, or use --engine {own.value}.",
        )
    return chosen or own


def _proposed(
    name: str, ref: dict[str, str], facts: WeightFacts, engine: Engine, wish: Wish, known: Settings
) -> Proposed:
    from sparkdash.catalog import annotated
    from sparkdash.cli.local import box_bytes
    from sparkdash.domain.profile import EngineKind
    from sparkdash.engines.estimate import estimate
    from sparkdash.engines.proposal import Box, propose
    from sparkdash.rules.memory import BOX_BYTES

    box = Box(box_bytes() or BOX_BYTES, int(known.reserve_gib * GIB))
    proposal = propose(_name(name), EngineKind(engine.value), ref, facts, box, wish)
    if "image" not in proposal.profile and known.runtime != "process":
        raise ProfileError(
            f"No image of {engine.value} for a Spark (arm64, SM121) is known.",
            code="image_missing",
            hint="Give yours with --image; build it on the Spark if there is none.",
        )
    profile, _ = _tried(proposal.profile["profile"], annotated.text(proposal.profile, proposal.reasons, ()))
    need = estimate(profile, {"target": facts}, box.total)
    text = annotated.text(proposal.profile, proposal.reasons, _head(facts, need))
    profile, warnings = _tried(profile.name, text)
    return Proposed(profile.name, text, profile, facts, need, (*warnings, *_short(need, box)))


def _name(text: str) -> str:
    """The profile's name, from the one given or the model's."""
    from sparkdash.catalog.importers.values import profile_name

    base = text.rstrip("/").rpartition("/")[2].removesuffix(".gguf").lower()
    if found := profile_name(base):
        return found
    raise ProfileError(f"{text!r} gives no name for a profile.", code="name_missing", hint="Give one with --name.")


def _tried(name: str, text: str) -> tuple[Profile, tuple[str, ...]]:
    """The profile as the catalog reads that text, and what the rules warn of.

    Raises:
        ProfileError: it is not valid; every problem is named.
    """
    from sparkdash.catalog.importers import write
    from sparkdash.rules import Level, findings

    found = write.tried({name: text})
    told = findings(found)
    wrong = (*map(str, found.problems), *(_told(one) for one in told if one.level is Level.ERROR))
    if wrong:
        raise ProfileError(f"No profile that would start can be made of {name}.", problems=wrong)
    return found.profiles[name], tuple(_told(one) for one in told if one.level is Level.WARNING)


def _told(finding: Finding) -> str:
    """A finding without its place: the file is not there yet."""
    problem = finding.problem
    return f"{problem.key}: {problem.message}. {problem.hint} [{finding.rule}]"


def _short(need: Need, box: Box) -> Iterator[str]:
    total = need.total_bytes
    if total is not None and total > box.total - box.reserve:
        yield (
            f"it needs {gib(total)}, and this box has {gib(box.total)} with {gib(box.reserve)} kept free: "
            "a start will be refused. Use a smaller checkpoint or --context."
        )


def _head(facts: WeightFacts, need: Need) -> Iterator[str]:
    """What stands above the profile: what the headers told, and the need."""
    from textwrap import wrap

    from sparkdash.cli.profile_page import needed

    origin = " ".join(facts.origin.split())
    yield f"Proposed by `sparkdash profiles new` from the headers of {origin}. Nothing of it was measured."
    yield ""
    yield from wrap(_described(facts), HEAD_COLUMNS)
    yield ""
    yield from (line.removeprefix("  ") for line in needed(need, HEAD_COLUMNS))


def _described(facts: WeightFacts) -> str:
    size = f"{facts.parameters / 1e9:.1f} billion parameters" if facts.parameters else "Parameters unknown"
    kinds = ", ".join(f"{layers.layers} {layers.kind.value}" for layers in facts.kv) or "what they keep is not known"
    each, active = facts.kv_bytes_per_token(), facts.active_bytes()
    words = [
        f"{size} in {gib(facts.bytes.total)} ({facts.quantization or facts.dtype or 'unquantized'}), "
        f"{facts.layers or DASH} layers ({kinds}), context {tokens(facts.context)}."
    ]
    if each:
        words.append(f"A token keeps {each / 1024:.0f} KiB in a 16-bit KV cache.")
    if active:
        words.append(f"Decoding one reads {active / 1e9:.1f} GB of weights.")
    if facts.mtp:
        words.append(f"It has an MTP head of {gib(facts.bytes.draft)}.")
    return " ".join(words)


def _write(made: Proposed) -> Path:
    """Into the owner's folder of profiles, under a name that is free.

    Raises:
        ProfileError: `profile_exists`: there is such a file or profile already.
    """
    from sparkdash import paths
    from sparkdash.cli.local import catalog

    place = paths.config_dir() / "profiles" / f"{made.name}.yaml"
    there = catalog().profiles.get(made.name)
    if there is not None or place.exists():
        raise ProfileError(
            f"There is a profile {made.name} already: {there.source if there else place}.",
            code="profile_exists",
            hint="Choose another name with --name.",
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(made.text)
    except OSError as error:
        raise ProfileError(f"{place} cannot be written: {error.strerror}.", code="profile_exists") from None
    return place


def _json(made: Proposed, place: Path | None) -> dict[str, Any]:
    return {
        "profile": made.profile.model_copy(update={"source": "" if place is None else str(place)}),
        "yaml": made.text,
        "facts": made.facts,
        "need": made.need,
        "warnings": made.warnings,
        "written": None if place is None else str(place),
    }
