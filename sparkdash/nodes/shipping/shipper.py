"""Shipper: what a profile needs on a node, and its copy from this box, with progress."""

import asyncio
import fcntl
import functools
import json
import shlex
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sparkdash.catalog.checkpoint.on_disk import repository_folder
from sparkdash.domain.images import CopyItem, CopyKind, CopyPlan, CopyProgress, CopyStep, NodeStock
from sparkdash.domain.profile import ModelRef, Profile, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.local_weights import find_weights, split_repository
from sparkdash.host.podman import answers
from sparkdash.host.podman.argv import PODMAN
from sparkdash.host.thread import in_thread
from sparkdash.nodes.directory import NodeDirectory
from sparkdash.nodes.programs import ask
from sparkdash.nodes.shipping.child import CopyMeter, SshAccess, run_piped, run_watched
from sparkdash.nodes.shipping.weights import WeightsCopy, model_files
from sparkdash.settings import Settings

ASK_S = 20.0
"""Deadline of a command that only reads: podman takes 0.05 s on an idle box."""
LOAD_S = 3600
"""Time after which a `podman load` ends whose connection died silently: sshd would keep it for hours."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Image as podman knows it."""

    id: str
    size: int


class ImageCopy:
    """Copies images to one node."""

    def __init__(self, access: SshAccess, node: str, meter: CopyMeter) -> None:
        self._access, self._node, self._meter = access, node, meter

    def compare(self, image: str, *, alike: bool) -> CopyItem:
        """Find out whether the node has the image; with `alike` it must be the same as here.

        Raises:
            HostError: node_unreachable, runtime_failed, runtime_timeout.
        """
        here, there = self._facts(image, here=True), self._facts(image, here=False)
        equal = there is not None and (not alike or here is None or here.id == there.id)
        facts = here or there
        return CopyItem(
            kind=CopyKind.IMAGE,
            name=image,
            bytes=facts.size if facts else 0,
            missing_bytes=0 if equal or here is None else max(here.size, 1),
            here=facts is not None,
            replaces=None if equal or there is None else there.id,
        )

    def send(self, image: str) -> None:
        """Copy the image; the node gives it the name that it has here.

        Raises:
            HostError: image_missing, image_by_digest, node_unreachable, runtime_failed.
        """
        if "@" in image:
            raise HostError(
                f"{image} is named by its digest, which a copy cannot keep.",
                code="image_by_digest",
                hint=f"Pull it on {self._node} itself: `podman pull {image}`.",
            )
        facts = self._facts(image, here=True)
        if facts is None:
            raise answers.image_missing("podman", image, "it is not on this box")
        self._meter.begin(CopyStep.SEND, facts.size)
        load = self._access.command(self._node, ["timeout", str(LOAD_S), "podman", "load", "--quiet"])
        saved, loaded = run_piped(["podman", "save", "--quiet", image], load, self._meter)
        self._access.checked(self._node, "the image", loaded)
        if loaded.code:
            raise self._failed("load", loaded)
        if saved.code:
            raise self._failed("save", saved)
        found = self._facts(image, here=False)
        if found is None or found.id != facts.id:
            raise self._failed("load", loaded)

    def _facts(self, image: str, *, here: bool) -> ImageFacts | None:
        done = self._ask(["podman", "image", "inspect", image], here=here)
        if done.code and answers.no_such_image(done.err):
            return None
        try:
            found = json.loads(done.out)[0]
            return ImageFacts(found["Id"], int(found["Size"]))
        except (ValueError, LookupError, TypeError):
            raise self._failed("image inspect", done) from None

    def _ask(self, argv: Sequence[str], *, here: bool = False) -> CommandResult:
        """Run a command that only reads. Raises HostError: runtime_timeout, node_unreachable."""
        try:
            done = run_watched(argv if here else self._access.command(self._node, argv), self._meter, deadline_s=ASK_S)
        except TimeoutError:
            where = "this box" if here else self._node
            raise HostError(
                f"podman on {where} gave no answer for {ASK_S:.0f} s.",
                code="runtime_timeout",
                hint=f"See what `{shlex.join(argv)}` does on {where}. A restart of that box ends a podman that hangs.",
            ) from None
        return done if here else self._access.checked(self._node, "the image", done)

    def _failed(self, verb: str, done: CommandResult) -> HostError:
        where = "on this box" if verb == "save" else f"on {self._node}"
        return HostError(
            f"`podman {verb}` failed {where}: {answers.last_words(done.err) or f'exit code {done.code}'}",
            code="runtime_failed",
            hint="Correct what podman names, and run it again.",
        )


TICK_S = 0.25
T = TypeVar("T")


def make_shipper(settings: Settings, fast_address: Callable[[str], str | None]) -> "NodeShipper":
    locks = settings.cache_dir.expanduser() / "copies"
    return NodeShipper(SshAccess(fast_address), settings.hf_home.expanduser(), locks, images=settings.runtime == PODMAN)


class NodeShipper:
    """Copies images and weights from this box to its nodes. `images`: whether the runtime is podman."""

    def __init__(self, access: SshAccess, hf_home: Path, locks: Path, *, images: bool) -> None:
        self._access, self._hf_home, self._locks, self._images = access, hf_home, locks, images

    async def plan(
        self,
        profile: Profile,
        node: str,
        *,
        image: bool = True,
        weights: bool = True,
        alike: bool = True,
        on_progress: Callable[[CopyProgress], object] = lambda _: None,
    ) -> CopyPlan:
        """Find out what the node lacks of a profile; `alike` False: what it has may differ from this box.

        Raises:
            HostError: node_unreachable; weights_unreadable.
        """
        work: list[tuple[CopyKind, str, Callable[[CopyMeter], CopyItem]]] = []
        if image and self._images and profile.image and profile.fetches_nothing is None:
            compare = functools.partial(self._compare_image, profile.image, node, alike)
            work.append((CopyKind.IMAGE, profile.image, compare))
        work += [
            (CopyKind.WEIGHTS, ref.ref, functools.partial(self._compare_model, ref, node, alike))
            for ref in dict.fromkeys(profile.weights if weights else ())
        ]
        items = [await _watched(CopyMeter(kind, name, node), each, on_progress) for kind, name, each in work]
        return CopyPlan(profile=profile.name, node=node, items=tuple(items), alike=alike)

    async def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        """Copy what a plan found missing; each item's last report has `done`. Closing the generator stops it.

        Raises:
            HostError: node_unreachable, disk_full, copy_busy, copy_refused, copy_failed, image_by_digest,
                runtime_failed; image_missing and weights_missing for what this box has not either.
        """
        for item in plan.missing:
            if not item.here:
                raise on_neither(profile, item, plan.node)
        for item in plan.missing:
            meter = CopyMeter(item.kind, item.name, plan.node)
            send = functools.partial(self._send, profile, plan, item, meter)
            async with aclosing(_reports(meter, send)) as reports:
                async for report in reports:
                    yield report

    def _send(self, profile: Profile, plan: CopyPlan, item: CopyItem, meter: CopyMeter) -> None:
        with self._locked(plan.node, item.name):
            if item.kind is CopyKind.IMAGE:
                ImageCopy(self._access, plan.node, meter).send(item.name)
                return
            ref = next(each for each in profile.weights if each.ref == item.name)
            files = model_files(ref, self._hf_home, self._access.hf_home(plan.node))
            copy = WeightsCopy(self._access, plan.node, meter)
            copy.send(files, copy.compare(files, any_content=not plan.alike))

    def _compare_image(self, image: str, node: str, alike: bool, meter: CopyMeter) -> CopyItem:
        return ImageCopy(self._access, node, meter).compare(image, alike=alike)

    def _compare_model(self, ref: ModelRef, node: str, alike: bool, meter: CopyMeter) -> CopyItem:
        hf_home = self._access.hf_home(node)
        if not find_weights(ref, self._hf_home).here:
            here = not alike and self._is_there(ref, hf_home, node, meter)
            return CopyItem(kind=CopyKind.WEIGHTS, name=ref.ref, bytes=0, missing_bytes=0, here=here)
        files = model_files(ref, self._hf_home, hf_home)
        missing = WeightsCopy(self._access, node, meter).compare(files, any_content=not alike)
        bytes_ = max(missing.size, 1 if missing.names else 0)
        return CopyItem(kind=CopyKind.WEIGHTS, name=ref.ref, bytes=missing.total, missing_bytes=bytes_)

    def _is_there(self, ref: ModelRef, hf_home: str, node: str, meter: CopyMeter) -> bool:
        """Whether a node has a model that this box has not; whether it is complete, its engine tells."""
        place = ref.ref
        if ref.hf:
            place = f"{repository_folder(Path(hf_home), split_repository(ref.hf)[0])}/snapshots"
        listing = ["ls", "-A", "--", place.removeprefix("~/")]
        done = run_watched(self._access.command(node, listing), meter)
        return bool(self._access.checked(node, ref.ref, done).out)

    @contextmanager
    def _locked(self, node: str, name: str) -> Iterator[None]:
        """Hold the lock of this item's copy to the node. Raises HostError: copy_busy."""
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{node}-{name.replace('/', '-')[-200:]}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HostError(
                    f"Another program is copying {name} to {node}.",
                    code="copy_busy",
                    hint="Wait for it, or end it and run this again: nothing is sent twice.",
                ) from None
            yield


async def _watched(
    meter: CopyMeter, work: Callable[[CopyMeter], T], on_progress: Callable[[CopyProgress], object]
) -> T:
    found: list[T] = []
    async with aclosing(_reports(meter, lambda: found.append(work(meter)))) as reports:
        async for report in reports:
            if report.total_bytes and not report.done:
                on_progress(report)
    return found[0]


async def _reports(meter: CopyMeter, work: Callable[[], object]) -> AsyncGenerator[CopyProgress, None]:
    """Do the work in a thread and report its progress; leaving early ends it."""
    task = asyncio.create_task(in_thread(work))
    try:
        while not task.done():
            yield meter.now()
            await asyncio.wait({task}, timeout=TICK_S)
        await task
        yield meter.end()
    finally:
        if not task.done():
            meter.stop()
            task.cancel()


def on_neither(profile: Profile, item: CopyItem, node: str) -> HostError:
    copies = f"then `sparkdash nodes copy {profile.name} --to {node}`, or start it: a start copies what is missing"
    if item.kind is CopyKind.IMAGE:
        return HostError(
            f"The image {item.name} of {profile.name} is neither on {node} nor on this box.",
            code="image_missing",
            hint=f"Fetch it here with `sparkdash pull {profile.name}`, {copies}.",
        )
    fetch = "Put them there, or here"
    if any(ref.hf == item.name for ref in profile.weights):
        fetch = f"Fetch them here with `sparkdash pull {profile.name}`"
    return HostError(
        f"The weights {item.name} of {profile.name} are neither complete on {node} nor on this box.",
        code="weights_missing",
        hint=f"{fetch}, {copies}.",
    )


LOOK_S = 3.0
WEIGHTS = ("sparkdash.catalog.checkpoint.on_disk", "sparkdash.host.local_weights")


async def stock_of_nodes(
    directory: NodeDirectory, profiles: Sequence[ProfileSummary]
) -> dict[str, dict[str, NodeStock]]:
    """Find what of these profiles each reachable node has, by profile and node."""
    nodes = [name for name, state in directory.states.items() if directory.reachable(state.name)]
    found = await asyncio.gather(*(_stock_of(directory, node, profiles) for node in nodes))
    return {
        one.name: {node: stock[one.name] for node, stock in zip(nodes, found, strict=True) if one.name in stock}
        for one in profiles
    }


async def _stock_of(directory: NodeDirectory, node: str, profiles: Sequence[ProfileSummary]) -> dict[str, NodeStock]:
    models = list(dict.fromkeys(ref for one in profiles for ref in one.weights))
    images = list(dict.fromkeys(one.image for one in profiles if one.image))
    try:
        sizes, here = await asyncio.gather(
            directory.runtime(node).images(images), _models_there(directory, node, models)
        )
    except HostError:
        return {}
    return {
        one.name: NodeStock(
            image=one.image in sizes if one.image else None,
            weights=all(here[ref] for ref in one.weights) if one.weights else None,
        )
        for one in profiles
    }


async def _models_there(directory: NodeDirectory, node: str, models: Sequence[ModelRef]) -> dict[ModelRef, bool]:
    (launch,) = directory.launch_on((node,))
    asked = [{"ref": ref.ref, "hf": ref.hf, "revision": ref.revision} for ref in models]
    words = launch.hf_home, json.dumps(asked)
    found = await ask(
        node, directory.connection(node).run, WEIGHTS, *words, deadline_s=LOOK_S, failed=partial(_failed, node)
    )
    return dict(zip(models, found, strict=True))


def _failed(node: str, words: str) -> HostError:
    return HostError(f"The models of {node} cannot be listed: {words}.", code="node_stock_unknown")
