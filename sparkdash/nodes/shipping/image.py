"""Copy of one image to a node: `podman save` here into `podman load` there, over ssh. Blocking."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.domain.images import CopyItem, CopyKind, CopyStep
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.podman import answers
from sparkdash.nodes.shipping.child import CopyMeter, SshAccess, disk_full, run_piped, run_watched

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
            HostError: image_missing, image_by_digest, disk_full, node_unreachable, runtime_failed.
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
        self._check_space(facts.size)
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

    def _check_space(self, needs: int) -> None:
        """Check the space for the image, which podman writes twice: as a temporary copy, and into its store."""
        root = self._ask(["podman", "info", "--format", "{{.Store.GraphRoot}}"]).out.strip() or "/var/lib/containers"
        rows = [line.split() for line in self._ask(["df", "-Pk", "/var/tmp", root]).out.splitlines()[1:]]  # noqa: S108
        disks = [row for row in rows if len(row) > 5]
        for row in disks:
            wanted = needs * sum(other[5] == row[5] for other in disks)
            if wanted > int(row[3]) * 1024:
                raise disk_full(self._node, row[5], wanted, int(row[3]) * 1024)

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
