"""Copy of one tree of files to a node: which files are missing there, and their sending over several connections.

Owns: the comparison (each file is hashed at first sight only), the order, and how many connections.
Must not know: images, profiles, ssh. Blocking; the meter's `stop` and the sessions' `kill_all` end it from outside.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from sparkdash.domain.local_files import CopyStep
from sparkdash.domain.node import LOCAL
from sparkdash.host.memory.page_cache import read_uncached
from sparkdash.nodes.shipping import copy_errors
from sparkdash.nodes.shipping.copy_context import CopyContext
from sparkdash.nodes.shipping.file_lane import FileLane, file_ident
from sparkdash.nodes.shipping.source_files import SourceFile, SourceTree

AT_ONCE = 4
"""Connections at once: one is bound by one core's cipher on either box."""
ALONE = 64 << 20
"""Bytes that are worth a connection of their own."""


class FoundName(NamedTuple):
    """State of one name on the node, as its receiver answers `stat`."""

    kind: str
    """`file`, `link`, `other` or `none`."""
    size: int
    mtime_ns: int
    target: str
    """Target of a link."""
    part_bytes: int
    """Bytes of the unfinished file that an interrupted copy left."""


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """Files and links of a tree that a node lacks."""

    tree: SourceTree
    files: tuple[tuple[SourceFile, int], ...]
    """Files, each with the bytes that have arrived already."""
    links: tuple[tuple[str, str], ...]

    @property
    def missing_bytes(self) -> int:
        """Bytes still to send."""
        return sum(file.size - came for file, came in self.files)


class TreeCopy:
    """Copy of trees to one node."""

    def __init__(self, context: CopyContext) -> None:
        self._context = context
        self._node, self._sums, self._meter = context.node, context.sums, context.meter

    def compare(self, tree: SourceTree, *, trust_names: bool = False, any_content: bool = False) -> MissingFiles:
        """Find what is missing on the node.

        `trust_names`: a blob of the right size and name is not hashed. `any_content`: a file of the right name counts.

        Raises:
            HostError.
        """
        there = self._find_on_node(tree)
        if any_content:
            present = {name for name, found in there.items() if found.kind != "none"}
        else:
            present = self._equal_files(tree, there, trust_names) | {
                name for name, target in tree.links if (there[name].kind, there[name].target) == ("link", target)
            }
        files = [(file, min(there[file.name].part_bytes, file.size)) for file in tree.files if file.name not in present]
        links = [(name, target) for name, target in tree.links if name not in present]
        return MissingFiles(tree, tuple(files), tuple(links))

    def send(self, missing: MissingFiles) -> None:
        """Send what is missing; resumes, and tries again after a cut.

        Raises:
            HostError: disk_full, copy_busy, copy_damaged, copy_refused, node_unreachable.
        """
        tree = missing.tree
        self._meter.begin(CopyStep.SEND, tree.size, missing.missing_bytes)
        self._check_space(missing)
        self._send_files(tree, [each for each in missing.files if not each[0].last])
        if missing.links:
            with self._context.session(tree.model, tree.root) as session:
                for name, target in missing.links:
                    session.ask("link", root=tree.root, name=name, target=target)
        self._send_files(tree, [each for each in missing.files if each[0].last])
        if missing.files:
            with self._context.session(tree.model, tree.root) as session:
                session.ask("tidy", root=tree.root)
        self._sums.save()

    def _find_on_node(self, tree: SourceTree) -> dict[str, FoundName]:
        """Ask the node for all names of the tree. Raises HostError where one is a folder there."""
        asked = [(file.name, file_ident(file)) for file in tree.files] + [(name, "link") for name, _ in tree.links]
        with self._context.session(tree.model, tree.root) as session:
            answers = session.ask("stat", root=tree.root, names=asked)
        there = {name: FoundName(*answer) for (name, _), answer in zip(asked, answers, strict=True)}
        for name, found in there.items():
            if found.kind == "other":
                facts = {"error": "bad_name", "name": name, "why": "it is a folder there"}
                raise copy_errors.refused(self._node, tree.model, tree.root, facts)
        return there

    def _equal_files(self, tree: SourceTree, there: dict[str, FoundName], trust_names: bool) -> set[str]:
        """Return the names of files with equal content."""
        alike = [file for file in tree.files if there[file.name][:2] == ("file", file.size)]
        trusted = {file.name for file in alike if trust_names and file.sha256}
        return trusted | self._equal_sums(tree, [file for file in alike if file.name not in trusted], there)

    def _equal_sums(self, tree: SourceTree, files: list[SourceFile], there: dict[str, FoundName]) -> set[str]:
        """Compare checksums; both boxes hash at once what is not known."""
        sums_here = {file.name: self._known_here(file) for file in files}
        sums_there = {file.name: self._known_there(tree, file, there[file.name].mtime_ns) for file in files}
        hash_here = [file for file in files if sums_here[file.name] is None]
        hash_there = [file for file in files if sums_there[file.name] is None]
        self._meter.begin(CopyStep.CHECK, sum(file.size for file in [*hash_here, *hash_there]))
        with ThreadPoolExecutor(1, thread_name_prefix="copy-hash") as pool:
            hashing = pool.submit(self._hash_here, hash_here)
            sums_there |= self._hash_there(tree, hash_there, there)
            sums_here |= hashing.result()
        self._sums.save()
        return {name for name, sha256 in sums_here.items() if sha256 == sums_there[name]}

    def _known_here(self, file: SourceFile) -> str | None:
        return file.sha256 or self._sums.find(LOCAL, str(file.source), file.size, file.mtime_ns)

    def _known_there(self, tree: SourceTree, file: SourceFile, mtime_ns: int) -> str | None:
        return self._sums.find(self._node, f"{tree.root}/{file.name}", file.size, mtime_ns)

    def _hash_there(self, tree: SourceTree, files: list[SourceFile], there: dict[str, FoundName]) -> dict[str, str]:
        if not files:
            return {}
        names = [file.name for file in files]
        with self._context.session(tree.model, tree.root) as session:
            sums = session.ask("hash", root=tree.root, names=names, hashed=self._meter.add)
        for file, sha256 in zip(files, sums, strict=True):
            self._sums.add(self._node, f"{tree.root}/{file.name}", file.size, there[file.name].mtime_ns, sha256)
        return dict(zip(names, sums, strict=True))

    def _hash_here(self, files: list[SourceFile]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for file in files:
            digest = hashlib.sha256()
            for piece in read_uncached(file.source):
                digest.update(piece)
                self._meter.add(len(piece))
            found[file.name] = digest.hexdigest()
            self._sums.add(LOCAL, str(file.source), file.size, file.mtime_ns, digest.hexdigest())
        return found

    def _check_space(self, missing: MissingFiles) -> None:
        if not missing.missing_bytes:
            return
        with self._context.session(missing.tree.model, missing.tree.root) as session:
            place = session.ask("space", places=[[missing.tree.root, missing.missing_bytes]])[0]
        if place["needs"] > place["free"]:
            raise copy_errors.disk_full(self._node, missing.tree.root, place["needs"], place["free"])

    def _send_files(self, tree: SourceTree, files: list[tuple[SourceFile, int]]) -> None:
        """Send files over several connections, the largest first."""
        left = sorted(files, key=lambda each: each[0].size - each[1])
        lock, failed = threading.Lock(), threading.Event()

        def work() -> None:
            with FileLane(self._context, tree) as lane:
                while not failed.is_set():
                    with lock:
                        if not left:
                            return
                        file, came = left.pop()
                    lane.send(file, came)

        def tried() -> None:
            try:
                work()
            except BaseException:
                failed.set()
                raise

        large = sum(file.size - came >= ALONE for file, came in files)
        if files:
            with ThreadPoolExecutor(max(1, min(AT_ONCE, large)), thread_name_prefix="copy") as pool:
                lanes = [pool.submit(tried) for _ in range(max(1, min(AT_ONCE, large)))]
            for lane in lanes:
                lane.result()
