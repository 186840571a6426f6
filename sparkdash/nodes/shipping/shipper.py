"""Shipper: what a profile needs on a node, and its copy from this box, with progress.

Owns: the threads of a copy, their end when the caller leaves, and the order of image and models. Must not know: swaps,
terminals, how files are sent.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from sparkdash.domain.local_files import CopyItem, CopyKind, CopyPlan, CopyProgress
from sparkdash.domain.profile import ModelRef, Profile
from sparkdash.errors import HostError
from sparkdash.host.local_weights import find_weights, repository_folder, split_repository
from sparkdash.host.thread import in_thread
from sparkdash.nodes.shipping.copy_context import CopyContext, Sessions
from sparkdash.nodes.shipping.copy_meter import CopyMeter
from sparkdash.nodes.shipping.image_copy import ImageCopy
from sparkdash.nodes.shipping.known_sums import KnownSums
from sparkdash.nodes.shipping.receiver_session import receiver_argv
from sparkdash.nodes.shipping.source_files import model_tree
from sparkdash.nodes.shipping.tree_copy import TreeCopy

TICK_S = 0.25
"""Interval of progress reports."""
T = TypeVar("T")


class NodeAccess(Protocol):
    """Way to the nodes."""

    def command(self, node: str, argv: Sequence[str]) -> Sequence[str]:
        """Return the local argv that runs `argv` on the node, over a connection of its own."""
        ...

    def hf_home(self, node: str) -> str:
        """Return the node's Hugging Face cache, which may begin with `~`."""
        ...

    def refusal(self, node: str, words: str) -> HostError | None:
        """Return the error for a node that may not be used, by a command's last words; None for a link that broke."""
        ...


@dataclass(frozen=True, slots=True)
class ShippingFolders:
    """Folders that a copy uses."""

    hf_home: Path
    """Hugging Face cache of this box."""
    staging: Path
    """Folder for the layers of the image under way."""
    sums: Path
    """File of known checksums."""


class NodeShipper:
    """Copies images and weights from this box to its nodes. `images`: whether the runtime is podman."""

    def __init__(self, access: NodeAccess, folders: ShippingFolders, *, images: bool) -> None:
        self._access = access
        self._folders = folders
        self._images = images

    async def plan(
        self,
        profile: Profile,
        node: str,
        *,
        image: bool = True,
        weights: bool = True,
        alike: bool = True,
        trust_names: bool = False,
        on_progress: Callable[[CopyProgress], object] = lambda _: None,
    ) -> CopyPlan:
        """Find out what the node lacks of a profile. Files of equal size are hashed at first sight, on both boxes.

        `alike` False: what the node has may differ from this box. `trust_names`: blobs of the hub's cache are taken
        for what their name says.

        Raises:
            HostError: node_unreachable; weights_unreadable.
        """
        items = []
        if image and self._images and profile.image and profile.fetches_nothing is None:
            work = functools.partial(_compare_image, profile.image, alike)
            items.append(await self._watched(CopyKind.IMAGE, profile.image, node, work, on_progress))
        for ref in dict.fromkeys(profile.weights if weights else ()):
            model = functools.partial(_compare_model, ref, self._access.hf_home(node), alike, trust_names)
            items.append(await self._watched(CopyKind.WEIGHTS, ref.ref, node, model, on_progress))
        return CopyPlan(profile=profile.name, node=node, items=tuple(items), alike=alike, trust_names=trust_names)

    async def copy(self, profile: Profile, plan: CopyPlan) -> AsyncGenerator[CopyProgress, None]:
        """Copy what a plan found missing; each item's last report has `done`. Closing the generator stops it.

        Raises:
            HostError: node_unreachable, disk_full, copy_busy, copy_damaged, copy_refused, image_by_digest,
                runtime_failed; image_missing and weights_missing for what this box has not either.
        """
        for item in plan.missing:
            if not item.here:
                raise on_neither(profile, item, plan.node)
        for item in plan.missing:
            job = _Job(self, item.kind, item.name, plan.node)
            async with aclosing(job.reports(functools.partial(self._send, profile, plan, item))) as reports:
                async for report in reports:
                    yield report

    def _send(self, profile: Profile, plan: CopyPlan, item: CopyItem, job: _Job) -> None:
        if item.kind is CopyKind.IMAGE:
            job.image_copy.send(item.name)
            return
        ref = next(each for each in profile.weights if each.ref == item.name)
        tree, copy = model_tree(ref, self._folders.hf_home, self._access.hf_home(job.node)), TreeCopy(job.context)
        copy.send(copy.compare(tree, trust_names=plan.trust_names, any_content=not plan.alike))

    async def _watched(
        self,
        kind: CopyKind,
        name: str,
        node: str,
        work: Callable[[_Job], T],
        on_progress: Callable[[CopyProgress], object],
    ) -> T:
        job, found = _Job(self, kind, name, node), []
        async with aclosing(job.reports(lambda job: found.append(work(job)))) as reports:
            async for report in reports:
                if report.total_bytes and not report.done:
                    on_progress(report)
        return found[0]


class _Job:
    """Work on one item in a thread, with its connections and its meter."""

    def __init__(self, shipper: NodeShipper, kind: CopyKind, name: str, node: str) -> None:
        folders, access = shipper._folders, shipper._access
        self.node = node
        self.folders = folders
        self._meter = CopyMeter(kind, name, node)
        self._sessions = Sessions(lambda: access.command(node, receiver_argv()))
        sums, refusal = KnownSums(folders.sums), functools.partial(access.refusal, node)
        self.context = CopyContext(node, self._sessions, sums, self._meter, refusal)
        self.image_copy = ImageCopy(self.context, functools.partial(access.command, node), folders.staging)

    async def reports(self, work: Callable[[_Job], object]) -> AsyncGenerator[CopyProgress, None]:
        """Do the work in a thread and report its progress; leaving early ends it."""
        task = asyncio.create_task(in_thread(lambda: work(self)))
        try:
            while not task.done():
                yield self._meter.now()
                await asyncio.wait({task}, timeout=TICK_S)
            await task
            yield self._meter.end()
        finally:
            if not task.done():
                self._meter.stop()
                self._sessions.kill_all()
                task.cancel()


def _compare_image(image: str, alike: bool, job: _Job) -> CopyItem:
    return job.image_copy.compare(image, alike=alike)


def _compare_model(ref: ModelRef, hf_home_there: str, alike: bool, trust_names: bool, job: _Job) -> CopyItem:
    presence = find_weights(ref, job.folders.hf_home)
    if not presence.here:
        return CopyItem(
            kind=CopyKind.WEIGHTS,
            name=ref.ref,
            bytes=0,
            missing_bytes=0,
            here=not alike and _is_there(ref, hf_home_there, job.context),
        )
    tree = model_tree(ref, job.folders.hf_home, hf_home_there)
    missing = TreeCopy(job.context).compare(tree, trust_names=trust_names, any_content=not alike)
    bytes_ = max(missing.missing_bytes, 1 if missing.files or missing.links else 0)
    return CopyItem(kind=CopyKind.WEIGHTS, name=ref.ref, bytes=tree.size, missing_bytes=bytes_)


def _is_there(ref: ModelRef, hf_home_there: str, context: CopyContext) -> bool:
    """Whether the node has a model that this box has not; whether it is complete, its engine tells."""
    if ref.hf:
        folder = repository_folder(Path(hf_home_there), split_repository(ref.hf)[0])
        root, name = f"{folder}/snapshots", ""
    else:
        path = Path(ref.ref)
        root, name = str(path.parent), path.name
    with context.session(ref.ref, root) as session:
        found = session.ask("list", root=root)
    return name in found if name else bool(found)


def on_neither(profile: Profile, item: CopyItem, node: str) -> HostError:
    """Error for an image or a model that neither box has."""
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
