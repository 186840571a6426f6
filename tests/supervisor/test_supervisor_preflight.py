"""Faults of a start that are known before anything is stopped, and clients that leave meanwhile."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from surroundings.house import House, SecondNode, make_profile

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.images import CopyItem, CopyKind, CopyPlan, CopyProgress, CopyStep, ImageBuild
from sparkdash.domain.phrases import progress_text
from sparkdash.domain.profile import EngineKind, ModelRef, Mount, Profile
from sparkdash.domain.swap import Swap, SwapPhase, phases_of
from sparkdash.errors import AdmissionError, HostError
from sparkdash.supervisor.decide.breaker import LOOKED_S
from sparkdash.supervisor.tools import Ports


class ScriptedShipper:
    """Finds one item missing on a node, and copies it in three steps; `fails` in the middle."""

    def __init__(self, item: CopyItem | None, fails: HostError | None = None) -> None:
        self.item = item
        self.fails = fails
        self.asked: list[tuple[str, str, bool]] = []

    async def plan(
        self, profile: Profile, node: str, *, alike: bool = True, on_progress: Callable[[CopyProgress], object]
    ) -> CopyPlan:
        self.asked.append((profile.name, node, alike))
        return CopyPlan(profile=profile.name, node=node, items=(self.item,) if self.item else ())

    async def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        yield report(CopyStep.CHECK, 0)
        if self.fails:
            raise self.fails
        yield report(CopyStep.SEND, 1 << 30, rate=512 << 20, eta_s=2.0)
        yield report(CopyStep.LOAD, 0)


def report(step: CopyStep, came: int, *, rate: float | None = None, eta_s: float | None = None) -> CopyProgress:
    return CopyProgress(
        kind=CopyKind.WEIGHTS, name="m", node="spark2", step=step, came_bytes=came, total_bytes=2 << 30 if came else 0,
        bytes_per_s=rate, eta_s=eta_s,
    )  # fmt: skip


MISSING = CopyItem(kind=CopyKind.WEIGHTS, name="m", bytes=2 << 30, missing_bytes=2 << 30)


def told(house: House, phase: SwapPhase) -> list[Swap]:
    return [f.swap for f in house.facts if isinstance(f, SwapChanged) and f.swap.phase is phase]


async def test_a_copy_is_a_phase_with_bytes_and_time_left_before_the_start(house: House) -> None:
    shipper = ScriptedShipper(MISSING)
    await house.open(make_profile("b", node="spark2"), nodes=SecondNode(house), shipper=shipper)
    await house.leased("b")
    copying = told(house, SwapPhase.COPY)
    words = [swap.waits_for for swap in copying]
    assert "weights m to reach spark2: 1.0 GiB of 2.0 GiB, 512 MiB/s, 2.0s left" in words
    assert "weights m to be loaded on spark2" in words
    assert any(progress_text(swap, swap.started_at).startswith("copy 50 %") for swap in copying)
    await house.settled()
    assert phases_of(house.swaps()[-1])[0] is SwapPhase.COPY
    assert shipper.asked == [("b", "spark2", False)]


@pytest.mark.parametrize(
    ("node", "item", "asked"),
    [("spark2", None, [("a", "spark2", False)]), ("local", MISSING, [])],
    ids=["nothing to copy", "this box alone"],
)
async def test_without_anything_to_copy_no_phase_is_shown_and_for_this_box_alone_no_node_is_asked(
    house: House, node: str, item: CopyItem | None, asked: list[tuple[str, str, bool]]
) -> None:
    shipper = ScriptedShipper(item)
    await house.open(make_profile("a", node=node), nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    assert (told(house, SwapPhase.COPY), shipper.asked) == ([], asked)


async def test_a_replaced_image_is_told_as_a_notice(house: House) -> None:
    """By its id, so that nobody wonders where another one went."""
    item = CopyItem(kind=CopyKind.IMAGE, name="img:1", bytes=1, missing_bytes=1, replaces="abcdef012345678")
    await house.open(make_profile("b", node="spark2"), nodes=SecondNode(house), shipper=ScriptedShipper(item))
    await house.leased("b")
    (notice,) = (each for each in house.notices() if each.code == "image_replaced")
    assert "abcdef012345" in notice.text


WIDE = make_profile("wide", nodes=2, args={"tensor-parallel-size": 2})


class HeldShipper(ScriptedShipper):
    """A copy that goes on until it is told to end."""

    def __init__(self) -> None:
        super().__init__(MISSING)
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        yield report(CopyStep.SEND, 1 << 30)
        self.began.set()
        await self.go_on.wait()


async def test_an_engine_that_is_to_leave_serves_while_its_place_on_another_node_is_prepared(house: House) -> None:
    shipper = HeldShipper()
    supervisor = await house.open(make_profile("a"), WIDE, nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    wide = house.ask("wide")
    await house.clock.drive(shipper.began.wait())
    assert supervisor.engines["a"].state == "ready"
    late, _ = await house.granted("a")
    shipper.go_on.set()
    await house.clock.rest()
    assert house.state("a") == "draining"
    newcomer = house.ask("a")
    await house.clock.rest()
    assert not newcomer.has_lease
    assert not wide.has_lease
    await newcomer.vanish()
    await late.leave()
    await house.clock.drive(wide.granted())
    assert list(supervisor.engines) == ["wide"]


async def test_a_copy_that_fails_leaves_the_engine_that_was_to_leave_as_it_was(house: House) -> None:
    shipper = ScriptedShipper(MISSING, HostError("Its disk is full.", code="disk_full"))
    await house.open(make_profile("a"), WIDE, nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    assert (await house.refused("wide")).code == "disk_full"
    assert "draining" not in house.states("a")
    await house.leased("a")


@pytest.mark.parametrize("gib", [80, 20], ids=["evicted for it", "beside it"])
async def test_a_persons_stop_does_not_wait_for_a_copy(house: House, gib: int) -> None:
    shipper = HeldShipper()
    supervisor = await house.open(make_profile("a", gib=gib), WIDE, nodes=SecondNode(house), shipper=shipper)
    await house.leased("a")
    wide = house.ask("wide")
    await house.clock.drive(shipper.began.wait())
    shipper.began.clear()
    await house.clock.drive(supervisor.stop("a"))
    assert house.runtime.calls == [("start", "a"), ("stop", "a")]
    await house.clock.drive(shipper.began.wait())
    shipper.go_on.set()
    await house.clock.drive(wide.granted())
    assert list(supervisor.engines) == ["wide"]


@pytest.mark.parametrize("code", ["no_gpu_device", "mount_missing", "name_taken", "image_missing"])
async def test_what_the_runtime_would_refuse_evicts_nobody_and_is_tried_again_once_it_is_fixed(
    house: Any, code: str
) -> None:
    await house.served(make_profile("a"), make_profile("b"))
    house.runtime.refuses["b"] = HostError("The box lacks it.", code=code)
    for _ in range(3):
        assert (await house.refused("b")).message == "The box lacks it."
        assert house.swaps()[-1].failure.phase == "preflight"
        house.clock.time += LOOKED_S + 0.1
    assert house.runtime.calls == [("start", "a")]
    house.runtime.refuses.clear()
    await house.leased("b")
    assert house.runtime.running() == ["b"]


async def test_a_flag_that_the_engine_is_sure_to_refuse_evicts_nobody(house: Any) -> None:
    facts = {"image": "vllm/vllm-openai:v0.11.0", "engine_version": "0.11.0", "args": {"max-modal-len": 4096}}
    house.runtime.present.add("vllm/vllm-openai:v0.11.0")
    owned = {"silence": {"unknown-flag": "this build has it"}}
    await house.served(make_profile("a"), make_profile("b", **facts), make_profile("c", **facts, **owned))
    error = await house.refused("b")
    assert (error.code, "args.max-modal-len" in error.message) == ("unknown_flag", True)
    assert house.runtime.calls == [("start", "a")]
    await house.leased("c")


async def test_a_port_that_the_evicted_engine_gives_back_is_no_reason_against_a_start(
    house: Any, unused_tcp_port: int
) -> None:
    await house.served(make_profile("a"), make_profile("b"), engine_ports=(unused_tcp_port, unused_tcp_port))
    await house.leased("b")
    assert house.runtime.running() == ["b"]


async def test_an_image_to_be_built_is_named_with_its_command_and_never_pulled(house: Any) -> None:
    build = ImageBuild(context="images/b", minutes=30)
    await house.open(make_profile("a"), make_profile("b", image="localhost/none:0", build=build, nearest="a"))
    error = await house.refused("b")
    told = (
        "It must be built: `sparkdash build b`, about 30m00s. "
        "a serves the same model from a published image: `sparkdash use a`."
    )
    assert (error.code, error.hint) == ("image_missing", told)
    with pytest.raises(HostError) as caught:
        await anext(house.supervisor.pull("b"))
    assert (caught.value.code, caught.value.hint) == ("image_missing", told)


@pytest.mark.parametrize("fix", ["git lfs pull", "sparkdash pull"])
async def test_weights_that_are_not_whole_evict_nobody(house: Any, tmp_path: Path, fix: str) -> None:
    """A folder cloned without Git LFS, and such a file in the hub's cache."""
    folder, weights = tmp_path, ModelRef(path=str(tmp_path))
    if fix == "sparkdash pull":
        folder, weights = tmp_path / "hub/models--org--b/snapshots/main", ModelRef(hf="org/b")
        folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    await house.served(make_profile("a"), make_profile("b", models={"target": weights}), hf_home=tmp_path)
    error = await house.refused("b")
    assert error.code == "weights_missing"
    assert "a Git LFS pointer" in error.message
    assert fix in (error.hint or "")
    assert not [call for call in house.runtime.calls if call[0] == "stop"]


@pytest.mark.parametrize(
    "facts", [{"build": ImageBuild(context="images/a")}, {"image": "localhost/mine:1"}], ids=["a recipe", "by hand"]
)
async def test_an_image_that_was_built_is_here_and_asks_no_registry(house: Any, facts: Any) -> None:
    house.runtime.present.add("localhost/mine:1")
    await house.open(make_profile("a", **facts))
    assert [step.detail async for step in house.supervisor.pull("a")] == ["here already"]


async def test_an_image_that_no_registry_has_is_not_asked_for(house: Any) -> None:
    await house.open(make_profile("a", image="localhost/mine:1"))
    with pytest.raises(HostError, match="No registry has localhost/mine:1") as caught:
        [step async for step in house.supervisor.pull("a")]
    assert caught.value.hint == "No registry has it: build it yourself, or say how with `build:` in the profile."


async def test_a_missing_image_evicts_nobody_and_pulling_it_fixes_it_at_once(house: Any) -> None:
    await house.served(make_profile("a"), make_profile("b", image="new"))
    error = await house.refused("b")
    assert isinstance(error, HostError)
    assert error.code == "image_missing"
    assert "sparkdash pull b" in error.hint
    assert house.swaps()[-1].failure.phase == "preflight"
    assert house.state("a") is EngineState.READY
    assert house.runtime.calls == [("start", "a")]
    assert [step async for step in house.supervisor.pull("b")][-1].done
    await house.leased("b")


async def test_weights_at_a_path_that_is_not_here_name_another_profile_and_fix_it_once_they_came(
    house: Any, tmp_path: Path
) -> None:
    path = tmp_path / "weights"
    await house.served(make_profile("a"), make_profile("b", models={"target": ModelRef(path=str(path))}, nearest="a"))
    error = await house.refused("b")
    assert (error.code, str(path) in error.message) == ("weights_missing", True)
    assert error.hint == (
        "Put them there, or correct the path in the profile. "
        "a serves the same model from a published image: `sparkdash use a`."
    )
    assert house.runtime.running() == ["a"]
    path.mkdir()
    house.clock.time += LOOKED_S + 0.1
    await house.leased("b")
    assert house.state("b") is EngineState.READY


def test_paths_of_a_container_are_looked_for_where_they_lie() -> None:
    models = {"target": ModelRef(path="/models/x/y"), "drafter": ModelRef(path="/nosuch")}
    for mounts, place in (
        ((), "/models/x/y"),
        ((Mount(source="/data", target="/models"),), "/data/x/y"),
        ((Mount(source="/data", target="/models"), Mount(source="/fast", target="/models/x")), "/fast/y"),
        ((Mount(source="volume", target="/models"),), None),
    ):
        profile = make_profile("a", models=models, mounts=mounts)
        assert [ref.ref for ref in profile.weights] == ([place] if place else [])
        assert [ref.ref for ref in profile.used_models] == ["/models/x/y"]


@pytest.mark.parametrize(("facts", "told"), [
    ({"engine": EngineKind.SIM}, "it is simulated"),
    ({"engine": EngineKind.OPENAI, "url": "http://x"}, "listens at http://x"),
], ids=["simulated", "elsewhere"])  # fmt: skip
async def test_there_is_nothing_to_pull(house: Any, facts: dict[str, Any], told: str) -> None:
    await house.open(make_profile("b", image=None, models={}, **facts))
    with pytest.raises(AdmissionError, match=told) as caught:
        await anext(house.supervisor.pull("b"))
    assert (caught.value.code, caught.value.hint) == ("nothing_to_pull", None)


async def test_a_taken_port_is_passed_over_and_a_full_range_is_told(house: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await house.open(make_profile("a"), engine_ports=(port, port))
        error = await house.refused("a")
    assert error.code == "port_in_use"
    assert str(port) in error.message
    assert house.runtime.here == {}


def test_a_port_on_which_an_engine_of_another_daemon_will_listen_is_passed_over() -> None:
    """vLLM binds its port at once and listens minutes later: a second engine on it would fail only then."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        ports = Ports(port, port + 99, seed="")
        assert port not in {ports.take() for _ in range(200)}


async def test_a_client_that_leaves_as_it_is_granted_leaves_nothing_behind(house: Any) -> None:
    await house.open(make_profile("a"), make_profile("b"))
    asking = house.ask("a")
    granted: list[bool] = []

    def hang_up(fact: Any) -> None:
        if fact.kind == "engine" and fact.engine.in_flight == 1:
            granted.append(asking.has_lease)
            asking.task.cancel()

    house.on_fact = hang_up
    await house.clock.drive(asyncio.wait({asking.task}))
    await house.settled()
    assert granted == [False]
    assert asking.task.cancelled()
    assert house.supervisor.engines["a"].in_flight == 0
    await house.leased("b")
    assert house.runtime.running() == ["b"]
