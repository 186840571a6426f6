"""Proposals for the first hour: which steps `sparkdash setup` takes, in which order, and why. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from sparkdash.catalog.catalog import NO_TAG
from sparkdash.catalog.importers.values import ImportNotes, aliases
from sparkdash.discovery.found import Discovered, FoundServer, SetupStep, StepOutlook
from sparkdash.domain.profile import ProfileSummary
from sparkdash.host.inventory import ProfileStock
from sparkdash.units import counted, gib

MOST_ATTACHED = 5
"""Models of one server that get a profile."""


def attached_profiles(
    servers: Sequence[FoundServer], taken: Collection[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a profile for each model of each server: its file's name and content.

    `taken`: names of other profiles, which a file of that name would replace; the server's name goes in front then.
    """
    for server in servers:
        for model in server.models[:MOST_ATTACHED]:
            name = plain_name(model)
            if name in taken:
                name = f"{plain_name(server.kind.partition(' or ')[0])}-{name}"
            about = f"{model} of the {server.kind} server that already runs"
            profile = {"profile": name, "about": about, "engine": "openai", "url": server.url, "model_id": model}
            # clients that used the server directly keep their name for the model
            served = aliases([untagged(model)], name, ImportNotes())
            yield f"{name}.yaml", profile | ({"serves": served} if served and served[0] not in taken else {})


def taken_names(profiles: Iterable[ProfileSummary]) -> frozenset[str]:
    """Names that no attached server may get: those of all other profiles, aliases included."""
    others = [one for one in profiles if one.engine.is_remote or not one.engine.is_external]
    return frozenset(one.name.partition("/")[0] for one in others).union(*(one.serves for one in others))


def plain_name(model: str) -> str:
    """Return a profile's name for a server's model: "org/Qwen3:8b" becomes "qwen3-8b", "tiny:latest" just "tiny"."""
    return re.sub(r"[^a-z0-9.]+", "-", untagged(model).rpartition("/")[2].lower()).strip("-.") or "attached"


def untagged(model: str) -> str:
    return model.removesuffix(f":{NO_TAG}")


FIRST = ("gpt-oss-20b", "gpt-oss-120b/gguf")
"""Profiles for a box without any weights, the quickest to fetch first; the source of their figures is in the files."""


@dataclass(frozen=True, slots=True)
class StepProposal:
    """Step of a setup: finding, proposal, and the commands that do the same."""

    step: SetupStep
    outlook: StepOutlook
    found: str
    commands: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    """Names that the step works on: profiles, files, clients."""


@dataclass(frozen=True, slots=True)
class BoxState:
    """Facts about this box and its sparkdash, for `propose`."""

    discovered: Discovered
    profiles: Sequence[ProfileSummary]
    stock: Mapping[str, ProfileStock]
    box_bytes: int | None = None
    reserve_bytes: int = 0
    running: str | None = None
    without_text: Collection[str] = ()
    """Profiles that write no text: speech, embeddings, pictures. None of them gives a first token."""
    simulated: bool = False
    own_files: Collection[str] = ()
    origins: Collection[str] = ()
    service: bool | None = False
    """Whether the service is installed; None: this box has no user manager of systemd."""
    clients: Mapping[str, bool] = field(default_factory=dict)
    """Clients found here; whether each is set up."""
    problems: Sequence[str] = ()
    chosen: str | None = None


def propose(state: BoxState, *, attaches: bool = False) -> tuple[StepProposal, ...]:
    """Return a proposal for every step, in order. `attaches`: the step attach is taken before the later ones."""
    coming = _coming_profile(state) if attaches else None
    return (
        _box(state),
        _attach(state),
        _import(state),
        _model(state, coming),
        _service(state),
        _clients(state),
        _first_token(state, coming),
    )


def first_profile(state: BoxState) -> tuple[ProfileSummary, str] | None:
    """Choose the profile to begin with, and say why; None if no profile can run here."""
    if state.chosen is not None:
        named = [one for one in state.profiles if state.chosen in (one.name, *one.serves)]
        return (named[0], "you named it") if named else None
    return _served_profile(state) or _profile_on_disk(state) or _fetched_profile(state)


def _served_profile(state: BoxState) -> tuple[ProfileSummary, str] | None:
    by_name = {one.name: one for one in state.profiles}
    if state.running in by_name:
        return by_name[state.running], "it runs already"
    for profile in _attachable_writers(state):
        found = by_name.get(profile["profile"])
        if found is not None and found.engine.is_external:
            return found, "a server that runs has it"
    return None


def _profile_on_disk(state: BoxState) -> tuple[ProfileSummary, str] | None:
    whole = [one for one in state.profiles if _can_run(one, state) and _weights_here(one, state.stock)]
    if ready := [one for one in whole if _image_here(one, state.stock)]:
        return _strongest(ready), "its image and weights are on this box"
    fetched = [one for one in whole if _can_be_pulled(one)]
    return (_strongest(fetched), "its weights are on this box") if fetched else None


def _fetched_profile(state: BoxState) -> tuple[ProfileSummary, str] | None:
    pulled = {one.name: one for one in state.profiles if _can_run(one, state) and _can_be_pulled(one)}
    for name in FIRST:
        if name in pulled:
            return pulled[name], "a model that suits this box well and is fetched quickly"
    smallest = min(pulled.values(), key=lambda one: one.needs_bytes or 0, default=None)
    return (smallest, "the smallest that can be pulled") if smallest else None


def _box(state: BoxState) -> StepProposal:
    if not state.problems:
        found = "nothing keeps engines from running"
        return StepProposal(SetupStep.BOX, StepOutlook.DONE, found, ("sparkdash doctor",))
    found = f"the doctor found {counted(len(state.problems), 'fault')} to repair first: {', '.join(state.problems)}"
    command = f"sparkdash doctor {' '.join(state.problems)}"
    return StepProposal(SetupStep.BOX, StepOutlook.PROPOSED, found, (command,), tuple(state.problems))


def _attach(state: BoxState) -> StepProposal:
    servers = state.discovered.servers
    made = dict(attached_profiles(servers, taken_names(state.profiles)))
    new = tuple(file for file in made if file not in state.own_files)
    if not made:
        return StepProposal(SetupStep.ATTACH, StepOutlook.NOTHING, "no other server runs")
    shown = "; ".join(
        f"{one.kind} at {one.url} with {', '.join(one.models[:3])}{' …' if len(one.models) > 3 else ''}"
        for one in servers
    )
    outlook = StepOutlook.PROPOSED if new else StepOutlook.DONE
    return StepProposal(SetupStep.ATTACH, outlook, shown, tuple(f"a profile file {file}" for file in new), new)


def _import(state: BoxState) -> StepProposal:
    for file in state.discovered.files:
        outlook = StepOutlook.DONE if PurePath(file.path).name in state.origins else StepOutlook.PROPOSED
        command = f"sparkdash profiles import {file.path} -o ~/.config/sparkdash/profiles/"
        found = f"a {file.kind} configuration: {file.path}"
        return StepProposal(SetupStep.IMPORT, outlook, found, (command,), (file.path,))
    return StepProposal(SetupStep.IMPORT, StepOutlook.NOTHING, "no configuration of llama-swap")


def _coming_profile(state: BoxState) -> str | None:
    """Return the profile that the step attach writes and that is begun with; None if another one is."""
    made = dict(attached_profiles(state.discovered.servers, taken_names(state.profiles)))
    if state.chosen is not None or state.running is not None or any(file in state.own_files for file in made):
        return None
    return next((profile["profile"] for profile in _attachable_writers(state)), None)


def _attachable_writers(state: BoxState) -> list[dict[str, Any]]:
    """Return the profiles of models that other servers have and that write text; the first is begun with."""
    mute = {(one.url, model) for one in state.discovered.servers for model in one.mute}
    made = attached_profiles(state.discovered.servers, taken_names(state.profiles))
    return [profile for _, profile in made if (profile["url"], profile["model_id"]) not in mute]


def _model(state: BoxState, coming: str | None) -> StepProposal:
    if coming is not None:
        return StepProposal(SetupStep.MODEL, StepOutlook.NOTHING, f"nothing to fetch: a server has {coming} already")
    if state.simulated:
        found = "nothing to fetch: the daemon that answers is simulated"
        return StepProposal(SetupStep.MODEL, StepOutlook.NOTHING, found)
    chosen = first_profile(state)
    if chosen is None:
        return StepProposal(SetupStep.MODEL, StepOutlook.NOTHING, _no_model(state), ("sparkdash profiles",))
    one, why = chosen
    here = not _needs_fetching(one, state.stock) or one.name == state.running
    outlook = StepOutlook.DONE if here else StepOutlook.PROPOSED
    commands: tuple[str, ...] = (f"sparkdash pull {one.name}",)
    if one.build is not None and not here and not _image_here(one, state.stock):
        commands = (f"sparkdash build {one.name}", *commands)
    return StepProposal(SetupStep.MODEL, outlook, f"{one.name}: {why}", commands, (one.name,))


def _no_model(state: BoxState) -> str:
    if state.chosen:
        return f"no profile is called {state.chosen!r}"
    box = "this box" if state.box_bytes is None else f"the {gib(state.box_bytes)} of this box"
    reserve = f" beside the reserve of {gib(state.reserve_bytes)}" if state.reserve_bytes else ""
    fitting = sum(_fits(one, state) for one in state.profiles)
    if fitting:
        return f"profiles that fit into {box}{reserve}: {fitting}, but none that can be pulled and writes text"
    return f"no profile fits into {box}{reserve}"


def _service(state: BoxState) -> StepProposal:
    command = ("sparkdash service install",)
    if state.service is None:
        found = "no systemd of your own; `sparkdash` and `sparkdash use` start the daemon"
        return StepProposal(SetupStep.SERVICE, StepOutlook.NOTHING, found)
    if state.service:
        return StepProposal(SetupStep.SERVICE, StepOutlook.DONE, "the daemon is a service of yours", command)
    found = "the daemon would start at login and after a crash"
    return StepProposal(SetupStep.SERVICE, StepOutlook.PROPOSED, found, command)


def _clients(state: BoxState) -> StepProposal:
    missing = tuple(name for name, done in state.clients.items() if not done)
    if not state.clients:
        found = "no client that can be set up was found"
        return StepProposal(SetupStep.CLIENTS, StepOutlook.NOTHING, found, ("sparkdash connect --list",))
    if not missing:
        return StepProposal(SetupStep.CLIENTS, StepOutlook.DONE, f"set up: {', '.join(state.clients)}")
    commands = tuple(f"sparkdash connect {name} --write" for name in missing)
    found = f"found here: {', '.join(missing)}"
    if state.simulated:  # it is gone soon, and its address with it
        found += "; the daemon is simulated"
        return StepProposal(SetupStep.CLIENTS, StepOutlook.OFFERED, found, commands, missing)
    return StepProposal(SetupStep.CLIENTS, StepOutlook.PROPOSED, found, commands, missing)


def _first_token(state: BoxState, coming: str | None) -> StepProposal:
    chosen = first_profile(state)
    name = coming or (chosen[0].name if chosen else None)
    if name is None:
        found = "there is no profile to ask; `sparkdash demo` needs none"
        return StepProposal(SetupStep.FIRST_TOKEN, StepOutlook.NOTHING, found)
    runs = name in (coming, state.running)
    found = f"asks {name} for one word" if runs else f"starts {name} and asks it for one word"
    return StepProposal(SetupStep.FIRST_TOKEN, StepOutlook.PROPOSED, found, (f"sparkdash use {name}",), (name,))


def _can_run(one: ProfileSummary, state: BoxState) -> bool:
    return _fits(one, state) and not one.engine.is_simulated and one.name not in state.without_text


def _fits(one: ProfileSummary, state: BoxState) -> bool:
    return one.fits_idle_box(state.box_bytes, state.reserve_bytes)


def _can_be_pulled(one: ProfileSummary) -> bool:
    return one.image is not None and not one.image.startswith("localhost/")


def _weights_here(one: ProfileSummary, stock: Mapping[str, ProfileStock]) -> bool:
    found = stock.get(one.name)
    return found is not None and found.weights is not None and found.weights.here


def _image_here(one: ProfileSummary, stock: Mapping[str, ProfileStock]) -> bool:
    found = stock.get(one.name)
    return found is not None and found.image is not None and found.image.here


def _needs_fetching(one: ProfileSummary, stock: Mapping[str, ProfileStock]) -> bool:
    if one.engine.is_external or one.engine.is_simulated:
        return False
    image = one.image is not None and not _image_here(one, stock)
    return image or (bool(one.weights) and not _weights_here(one, stock))


def _strongest(profiles: Sequence[ProfileSummary]) -> ProfileSummary:
    return max(profiles, key=lambda one: one.needs_bytes or 0)
