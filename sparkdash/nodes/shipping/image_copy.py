"""Copy of one image to a node: its layers as files, each sent by its checksum, then loaded there.

Owns: podman's commands on both boxes, the folders of layers and their removal. Must not know how files are sent.
Blocking.

Format `docker-dir`: it keeps the image's config, so its id, and holds each layer uncompressed under the checksum by
which every podman knows it (RootFS.Layers). So layers that any image of the node has need not be sent: `podman load`
takes them from there (seen with 4.3.1).
"""

from __future__ import annotations

import fcntl
import json
import math
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkdash.domain.local_files import CopyItem, CopyKind, CopyStep
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import answers
from sparkdash.nodes import ssh_command, ssh_errors
from sparkdash.nodes.shipping import copy_errors
from sparkdash.nodes.shipping.copy_context import CopyContext
from sparkdash.nodes.shipping.receiver_session import LinkLost
from sparkdash.nodes.shipping.remote_files import STAGING
from sparkdash.nodes.shipping.source_files import SourceFile, SourceTree
from sparkdash.nodes.shipping.tree_copy import TreeCopy
from sparkdash.nodes.shipping.watched_command import run_watched
from sparkdash.units import size

THERE = "~/.cache/sparkdash/copies"
"""Folder of layers on the node; one folder with STAGING's name in it for the image under way."""

ASK_S = 20.0
"""Deadline of a command that only reads: podman takes 0.05 s on an idle box."""

_LAYER = re.compile(r"[0-9a-f]{64}")
_LAYERS = (
    "podman images --all --quiet --no-trunc | sort -u"
    " | xargs -r podman image inspect --format '{{range .RootFS.Layers}}{{println .}}{{end}}'"
)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Image as podman knows it."""

    id: str
    size: int
    layers: tuple[str, ...]


class ImageCopy:
    """Copies images to one node. `command` turns the argv of a program there into a local one."""

    def __init__(self, context: CopyContext, command: Callable[[Sequence[str]], Sequence[str]], folder: Path) -> None:
        self._context = context
        self._command = command
        self._folder = folder

    def compare(self, image: str, *, alike: bool) -> CopyItem:
        """Find out whether the node has the image; with `alike` it must be the same as here.

        Raises:
            HostError: node_unreachable, runtime_failed.
        """
        here, there = self._facts(image, here=True), self._facts(image, here=False)
        equal = there is not None and (not alike or here is None or here.id == there.id)
        facts = here or there
        # with all its layers there and without its name, the image is missing too
        missing = 0 if equal or here is None else max(self._missing_bytes(here), 1)
        return CopyItem(
            kind=CopyKind.IMAGE,
            name=image,
            bytes=facts.size if facts else 0,
            missing_bytes=missing,
            here=facts is not None,
            replaces=None if equal or there is None else there.id,
        )

    def send(self, image: str) -> None:
        """Copy the image, and remove the folders of layers on both boxes.

        Raises:
            HostError: image_missing, image_by_digest, copy_busy, disk_full, node_unreachable, runtime_failed.
        """
        if "@" in image:
            raise HostError(
                f"{image} is named by its digest, which a copy cannot keep.",
                code="image_by_digest",
                hint=f"Pull it on {self._context.node} itself: `podman pull {image}`.",
            )
        facts = self._facts(image, here=True)
        if facts is None:
            raise answers.image_missing("podman", image, "it is not on this box")
        with self._locked():
            folder = self._saved(facts)
            self._clear_there(but=folder.name)
            self._transfer(image, facts, folder, self._layers_there())
            shutil.rmtree(folder, ignore_errors=True)

    def _transfer(self, image: str, facts: ImageFacts, folder: Path, known: frozenset[str]) -> None:
        tree = _layer_tree(image, folder, known)
        copy = TreeCopy(self._context)
        missing = copy.compare(tree, trust_names=True)
        self._check_space(tree, missing.missing_bytes)
        copy.send(missing)
        self._context.meter.begin(CopyStep.LOAD)
        loaded = self._there(["sh", "-c", f'podman load --quiet --input "$HOME"/{tree.root.removeprefix("~/")}'])
        if loaded.code and known:  # an image with one of the layers was removed there meanwhile
            self._transfer(image, facts, folder, frozenset())
            return
        if loaded.code:
            raise self._failed("load", loaded)
        tagged = self._there(["podman", "tag", facts.id, image])
        found = None if tagged.code else self._facts(image, here=False)
        if found is None or found.id != facts.id:
            raise self._failed("tag", tagged)
        self._clear_there(but="")

    def _saved(self, facts: ImageFacts) -> Path:
        """Write the image's layers to a folder here, unless an interrupted copy did; folders of other images go."""
        folder = self._folder / f"{facts.id[:12]}{STAGING}"
        for other in self._folder.iterdir():
            if other.name.endswith((STAGING, f"{STAGING}-new")) and other != folder:
                shutil.rmtree(other, ignore_errors=True)
        if folder.is_dir():
            return folder
        free = shutil.disk_usage(self._folder).free
        if facts.size > free:
            raise copy_errors.disk_full("this box", str(self._folder), facts.size, free)
        meter, new = self._context.meter, folder.with_name(f"{folder.name}-new")
        meter.begin(CopyStep.SAVE, facts.size)
        came = 0

        def look() -> None:
            nonlocal came
            now = sum(file.stat().st_size for file in new.iterdir()) if new.is_dir() else 0
            meter.add(now - came)
            came = now

        argv = ["podman", "save", "--quiet", "--format", "docker-dir", "--output", str(new), facts.id]
        done = run_watched(argv, meter, look)
        if done.code:
            shutil.rmtree(new, ignore_errors=True)
            raise self._failed("save", done)
        return new.rename(folder)

    def _check_space(self, tree: SourceTree, missing: int) -> None:
        """Check the space for the layers, written three times: as files, as podman's temporary copy, as the image."""
        asked = self._ask(["podman", "info", "--format", "{{.Store.GraphRoot}}"])
        root = asked.out.strip() or "/var/lib/containers"
        needs = sum(file.size for file in tree.files)
        with self._context.session(tree.model, tree.root) as session:
            wanted = [[root, needs], ["/var/tmp", needs], [tree.root, missing]]  # noqa: S108 - podman's own folder
            places = session.ask("space", places=wanted)
        for place in places:
            if place["needs"] > place["free"]:
                raise copy_errors.disk_full(self._context.node, place["place"], place["needs"], place["free"])

    def _clear_there(self, *, but: str) -> None:
        with self._context.session("the image", THERE) as session:
            for name in session.ask("list", root=THERE):
                if name.endswith(STAGING) and name != but:
                    session.ask("remove", root=f"{THERE}/{name}")

    def _missing_bytes(self, here: ImageFacts) -> int:
        """Return the bytes of the layers that the node lacks, by podman's history; all bytes where the history is no
        help.
        """
        known = self._layers_there()
        if not known.intersection(here.layers):
            return here.size
        done = run_watched(["podman", "history", "--format", "json", here.id], self._context.meter)
        try:
            large = [int(step["size"]) for step in reversed(json.loads(done.out)) if step["size"]]
        except (ValueError, LookupError, TypeError):
            return here.size
        if len(large) != len(here.layers):
            return here.size
        return sum(count for layer, count in zip(here.layers, large, strict=True) if layer not in known)

    def _layers_there(self) -> frozenset[str]:
        return frozenset(self._ask(["sh", "-c", _LAYERS]).out.split())

    def _facts(self, image: str, *, here: bool) -> ImageFacts | None:
        argv = ["podman", "image", "inspect", image]
        done = self._ask(argv, here=here)
        if done.code and answers.no_such_image(done.err):
            return None
        try:
            found = json.loads(done.out)[0]
            return ImageFacts(found["Id"], int(found["Size"]), tuple(found["RootFS"]["Layers"] or ()))
        except (ValueError, LookupError, TypeError):
            raise self._failed("image inspect", done) from None

    def _ask(self, argv: Sequence[str], *, here: bool = False) -> CommandResult:
        """Run a command that only reads. Raises HostError: runtime_timeout."""
        try:
            if here:
                return run_watched(argv, self._context.meter, deadline_s=ASK_S)
            return self._there(argv, ASK_S)
        except TimeoutError:
            where = "this box" if here else self._context.node
            raise HostError(
                f"podman on {where} gave no answer for {ASK_S:.0f} s.",
                code="runtime_timeout",
                hint=f"See what `{shlex.join(argv)}` does on {where}. A restart of that box ends a podman that hangs.",
            ) from None

    def _there(self, argv: Sequence[str], deadline_s: float = math.inf) -> CommandResult:
        """Run a program on the node. Raises TimeoutError."""
        done = run_watched(self._command(argv), self._context.meter, deadline_s=deadline_s)
        if done.code == ssh_errors.FAILED and ssh_command.OWN_255 not in done.err:
            raise self._context.lost(LinkLost(done.code, done.err), "the image")
        return done

    def _failed(self, verb: str, done: CommandResult) -> HostError:
        where = "on this box" if verb == "save" else f"on {self._context.node}"
        return HostError(
            f"`podman {verb}` failed {where}: {answers.last_words(done.err) or f'exit code {done.code}'}",
            code="runtime_failed",
            hint="Correct what podman names, and run it again: layers that arrived are kept.",
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of image copies: one image at a time, as folders of other images are removed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise copy_errors.refused(self._context.node, "an image", "", {"error": "busy"}) from None
            yield


def _layer_tree(image: str, folder: Path, known: frozenset[str]) -> SourceTree:
    """List the files of the saved image, without the layers that the node has."""
    files = []
    for path in sorted(folder.iterdir()):
        if f"sha256:{path.name}" in known:
            continue
        seen = path.stat()
        sha256 = path.name if _LAYER.fullmatch(path.name) else None
        files.append(SourceFile(path.name, path, seen.st_size, seen.st_mtime_ns, 0o644, sha256))
    return SourceTree(image, f"{THERE}/{folder.name}", tuple(files))


def describe_image(item: CopyItem, node: str) -> str | None:
    """Say that another image of the same name was on the node; None without one."""
    if item.replaces is None:
        return None
    return (
        f"{node} had another image under the name {item.name} ({item.replaces[:12]}). This box's replaced it, "
        f"{size(item.bytes)}; the other stays there without a name, until `podman image prune`."
    )
