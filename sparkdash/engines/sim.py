"""The simulated engine: vLLM's surface on sparkdash's own program, `python -m sparkdash.sim`. Pure."""

from sparkdash.domain.container import LABEL_HEAD, LABEL_NODES, ContainerSpec
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.profile import EngineKind, Profile, SimSpec
from sparkdash.engines import containers
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.vllm.surface import VllmSurface
from sparkdash.paths import PYTHON
from sparkdash.units import GIB

MODULE = "sparkdash.sim"


class Sim(VllmSurface):
    """Adapter of the simulation, which looks like vLLM."""

    kind = EngineKind.SIM
    title = "sim"
    program = (*PYTHON, "-m", MODULE)
    runs_on_nodes = True
    owned_by = "sparkdash-sim"

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the process of the simulation; the process runtime needs no GPU for it."""
        words = [
            *containers.program(profile, self.program),
            *("--port", str(launch.port), "--profile-json"),
            # reports print the command line, so defaults and descriptions are left out
            profile.model_dump_json(exclude_defaults=True, exclude={"about", "published", "silence", "source"}),
        ]
        head = containers.build_container(profile, launch, words, rank=0).replace(devices=())
        return _placed(head, launch)

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation of the imitated profile; else the number of simulated draft positions."""
        depth = len(profile.sim.acceptance) if profile.sim else 0
        imitated = profile.sim.speculation if profile.sim else None
        return imitated or super().speculation(profile) or (f"simulated k={depth}" if depth else None)

    def fixed_need(self, profile: Profile) -> Need | None:
        if profile.memory.total_bytes is not None:
            return None
        size = int((profile.sim or SimSpec()).memory_gib * GIB)
        return Need(basis=Basis.DECLARED, terms=(Term(name="steady", bytes=size, source="sim.memory_gib: simulated"),))


def _placed(head: ContainerSpec, launch: LaunchContext) -> ContainerSpec:
    """Put the head on the launch's first node, and a worker on each further one."""
    if not launch.nodes:
        return head
    first, *others = launch.nodes
    labels = {**head.labels, LABEL_NODES: ",".join(node.name for node in launch.nodes)}
    workers = tuple(
        head.replace(
            name=f"{head.name}-worker{rank}", node=node.name, argv=(*head.argv, "--worker"),
            labels={**labels, LABEL_HEAD: head.name},
        )
        for rank, node in enumerate(others, 1)
    )  # fmt: skip
    return head.replace(node=first.name, labels=labels, workers=workers)


ENGINE = Sim()
