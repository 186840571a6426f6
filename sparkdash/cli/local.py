"""Functions that need no daemon: read the catalog, build the command that starts an engine."""

import asyncio
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparkdash import paths, settings
from sparkdash.catalog import Catalog, load_catalog, summarize
from sparkdash.catalog.checkpoint import weights
from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, LABEL_SERVES, ContainerSpec
from sparkdash.domain.memory import Need
from sparkdash.domain.node import LOCAL, Link, Node, NodeLaunch
from sparkdash.domain.profile import Profile, ProfileSummary
from sparkdash.domain.request import Task
from sparkdash.domain.state import Snapshot
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.errors import AdmissionError, DaemonError, HostError
from sparkdash.host import inventory, meminfo
from sparkdash.host.inventory import Image, ProfileStock
from sparkdash.host.podman.argv import shell
from sparkdash.host.podman.with_starters import runtime_called
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.node_file import nodes_file, read_nodes
from sparkdash.rules import redact_profile
from sparkdash.settings import Settings

UNKNOWN_NODE = "SECOND_NODE"
"""Name of a worker's node where no other node was added."""


def planned_nodes(profile: Profile, known: Settings, others: tuple[Node, ...]) -> tuple[NodeLaunch, ...]:
    """Return the nodes of a launch of the profile; () for this box alone."""
    if profile.nodes == 1:
        return () if profile.node in (None, LOCAL) else (_other(profile.node, others, alone=True),)
    workers = [node.name for node in others][: profile.nodes - 1]
    workers += [UNKNOWN_NODE] * (profile.nodes - 1 - len(workers))
    here = NodeLaunch(
        name=LOCAL,
        address=f"ADDRESS_OF_{LOCAL}",
        hf_home=str(known.hf_home.expanduser()),
        cache_dir=str(known.cache_dir.expanduser()),
        link=_link(LOCAL, None),
    )
    return (here, *(_other(name, others) for name in workers))


def _other(name: str | None, others: tuple[Node, ...], *, alone: bool = False) -> NodeLaunch:
    name = name or UNKNOWN_NODE
    node = next((one for one in others if one.name == name), None)
    home = f"/HOME_OF_{name}/.cache"
    return NodeLaunch(
        name=name,
        address="127.0.0.1" if alone else (node and node.address) or f"ADDRESS_OF_{name}",
        hf_home=(node and node.hf_home) or f"{home}/huggingface",
        cache_dir=f"{home}/sparkdash",
        link=None if alone else _link(name, node),
    )


def _link(name: str, node: Node | None) -> Link:
    return Link(interface=(node and node.interface) or f"INTERFACE_OF_{name}", hca=f"HCA_OF_{name}")


def on_this_box(world: Snapshot | None) -> bool:
    """Whether the daemon runs on this box; one reached through `ssh -L` has another box's files."""
    return world is None or world.daemon.host == socket.gethostname()


def local_stock(profiles: Iterable[ProfileSummary], runtime: Runtime, known: Settings) -> dict[str, ProfileStock]:
    return asyncio.run(inventory.stock_of(profiles, runtime, known.hf_home.expanduser()))


def local_images(runtime: Runtime, names: Iterable[str]) -> Mapping[str, Image]:
    return asyncio.run(inventory.image_presence(runtime, names))


class EngineCommand(NamedTuple):
    """Command that starts an engine: the runtime's argv, and the same as shell text."""

    profile: str
    runtime: str
    argv: list[str]
    shell: str
    nodes: list[dict[str, object]] = []
    """`node`, `argv` and `shell` of each node, the serving one first; empty for this box alone."""


def configured_catalog(places: Sequence[Path] | None = None) -> Catalog:
    """Load the catalog that the daemon would read, or only `places` (folders or single files)."""
    if not places:
        return load_catalog(settings.load_settings().profile_folders())
    found = [_place(place.expanduser()) for place in places]
    profiles = {name: profile for one in found for name, profile in one.profiles.items()}
    located = {name: problem_at for one in found for name, problem_at in one.problem_at.items()}
    return Catalog(profiles, tuple(problem for one in found for problem in one.problems), located)


def find_profile(name: str) -> tuple[Profile, Snapshot | None]:
    """Return the profile with the daemon's state; where none answers, from the files and None."""
    from sparkdash.client.client import Client

    try:
        with Client() as client:
            return client.profile(name=name), client.state()
    except DaemonError as error:
        if error.code != DaemonError.default_code:
            raise
    return configured_catalog().find(name), None


def check_name(name: str) -> None:
    """Raise AdmissionError where neither a profile nor a name for several in `config.toml` is called so."""
    if name not in settings.load_settings().any:
        configured_catalog().find(name)


def _place(place: Path) -> Catalog:
    if not place.is_file():
        return load_catalog([place])
    folder = load_catalog([place.parent])
    mine = {name: one for name, one in folder.profiles.items() if one.source.rpartition(":")[0] == str(place)}
    return Catalog(mine, tuple(problem for problem in folder.problems if problem.file == str(place)), folder.problem_at)


def estimate_need(profile: Profile) -> Need:
    """Estimate the memory of a launch from flags and weight headers; measured values are not looked up."""
    facts = weights.read_profile_weights(profile, settings.load_settings().hf_home.expanduser())
    return estimate_launch(profile, facts, box_bytes())


def box_bytes() -> int | None:
    try:
        return meminfo.read_memory().total
    except HostError:
        return None


def profile_summaries() -> tuple[tuple[ProfileSummary, ...], tuple[str, ...]]:
    found = configured_catalog()
    shown = tuple(summarize(profile, adapter_of(profile)) for profile in found.profiles.values())
    return shown, tuple(map(str, found.problems))


def profiles_without_text() -> frozenset[str]:
    known = {name: adapter_of(profile).tasks(profile, None) for name, profile in configured_catalog().profiles.items()}
    return frozenset(name for name, tasks in known.items() if tasks is not None and Task.GENERATE not in tasks)


def engine_command(name: str) -> EngineCommand:
    """Build the command that starts the profile's engine, as the daemon would. Raises AdmissionError, ProfileError."""
    known = settings.load_settings()
    profile = _startable(name)
    runtime = make_runtime(known)
    image_id = None
    with suppress(HostError):
        image_id = asyncio.run(runtime.image_id(profile.image)) if profile.image and runtime.containerised else None
    spec = container_spec(profile, known, image_id=image_id)
    commands = [(one.node, asyncio.run(runtime.command(one))) for one in (spec, *spec.workers)]
    argv = commands[0][1]
    nodes: list[dict[str, object]] = []
    if spec.workers or spec.node != LOCAL:
        nodes = [{"node": node, "argv": words, "shell": shell(words)} for node, words in commands]
    return EngineCommand(profile.name, known.runtime, argv, shell(argv), nodes)


def export_spec(name: str) -> tuple[Profile, ContainerSpec]:
    """Return a profile and its container without an owner label, so that no daemon adopts it.

    The container of a profile for several nodes has the engine's command without a rank. Raises like `engine_command`.
    """
    known, profile = Settings.model_validate({**dict(settings.load_settings()), "runtime": "podman"}), _startable(name)
    labels = {LABEL_PROFILE: profile.name} | ({LABEL_SERVES: ",".join(profile.serves)} if profile.serves else {})
    alone = profile.replace(nodes=1, env_by_node={})
    return profile, container_spec(alone, known).replace(labels=labels)


def _startable(name: str) -> Profile:
    profile = _managed(name)
    if profile.cannot_run:
        raise AdmissionError(
            f"{profile.name} cannot run: {profile.cannot_run}.",
            code="cannot_run",
            hint=f"Use {profile.nearest} instead." if profile.nearest else None,
        )
    return profile


def _managed(name: str) -> Profile:
    """Return a profile that sparkdash starts, without its secrets: its command is only shown."""
    profile = redact_profile(configured_catalog().find(name))
    if not adapter_of(profile).managed:
        raise AdmissionError(
            f"{profile.name} is a server at {profile.url}, which sparkdash does not start.", code="not_managed"
        )
    return profile


def make_runtime(known: Settings) -> Runtime:
    return runtime_called(known.runtime)


def container_spec(profile: Profile, known: Settings, *, image_id: str | None = None) -> ContainerSpec:
    """Build the profile's container as the daemon would on its first free port. Raises ProfileError."""
    others = read_nodes(nodes_file())
    profile = next((one for one in profile.launches if one.nodes <= 1 + len(others)), profile)
    launch = LaunchContext(
        port=known.engine_ports[0],
        containerised=known.runtime != "process",
        hf_home=str(known.hf_home.expanduser()),
        cache_dir=str(known.cache_dir.expanduser()),
        image_id=image_id,
        labels={LABEL_OWNER: paths.owner()},
        nodes=planned_nodes(profile, known, others),
    )
    return adapter_of(profile).launched(profile, launch)
