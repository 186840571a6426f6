"""Copy of one tree of files to a node: which files are missing there, and their sending over several connections.

Owns: the comparison (each file is hashed at first sight only), the order, and how many connections.
Must not know: images, profiles, ssh. Blocking; the meter's `stop` and the sessions' `kill_all` end it from outside.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sparkdash.domain.copying import CopyStep
from sparkdash.domain.node import LOCAL
from sparkdash.host.files.uncached import read_uncached
from sparkdash.nodes.shipping import copy_errors
from sparkdash.nodes.shipping.copy_context import CopyContext
from sparkdash.nodes.shipping.file_lane import FileLane, file_ident
from sparkdash.nodes.shipping.source_files import SourceFile, SourceTree

AT_ONCE = 4
"""Connections at once: one is bound by one core's cipher on either box."""
ALONE = 64 << 20
"""Bytes that are worth a connection of their own."""


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
        asked = [(file.name, file_ident(file)) for file in tree.files] + [(name, "link") for name, _ in tree.links]
        with self._context.session(tree.model, tree.root) as session:
            found = session.ask("stat", root=tree.root, names=asked)
        there = {name: seen for (name, _), seen in zip(asked, found, strict=True)}
        for name, seen in there.items():
            if seen[0] == "other":
                facts = {"error": "bad_name", "name": name, "why": "it is a folder there"}
                raise copy_errors.refused(self._node, tree.model, tree.root, facts)
        if any_content:
            same = frozenset(name for name, seen in there.items() if seen[0] != "none")
            links = [(name, target) for name, target in tree.links if name not in same]
        else:
            alike = [file for file in tree.files if there[file.name][:2] == ["file", file.size]]
            same = self._same(tree, alike, {file.name: there[file.name][2] for file in alike}, trust_names)
            links = [(name, to) for name, to in tree.links if (there[name][0], there[name][3]) != ("link", to)]
        files = [(file, min(there[file.name][4], file.size)) for file in tree.files if file.name not in same]
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

    def _same(
        self, tree: SourceTree, alike: list[SourceFile], mtimes: dict[str, int], trust_names: bool
    ) -> frozenset[str]:
        """Names of files with equal content; hashes on both boxes at once what is not known."""
        certain = {file.name for file in alike if trust_names and file.sha256}
        open_ = [file for file in alike if file.name not in certain]
        here = {
            file.name: file.sha256 or self._sums.find(LOCAL, str(file.source), file.size, file.mtime_ns)
            for file in open_
        }
        there = {
            file.name: self._sums.find(self._node, f"{tree.root}/{file.name}", file.size, mtimes[file.name])
            for file in open_
        }
        hash_here = [file for file in open_ if here[file.name] is None]
        hash_there = [file for file in open_ if there[file.name] is None]
        self._meter.begin(CopyStep.CHECK, sum(file.size for file in [*hash_here, *hash_there]))
        with ThreadPoolExecutor(1, thread_name_prefix="copy-hash") as pool:
            hashing = pool.submit(self._hash_here, hash_here)
            if hash_there:
                with self._context.session(tree.model, tree.root) as session:
                    names = [file.name for file in hash_there]
                    sums = session.ask("hash", root=tree.root, names=names, hashed=self._meter.add)
                for file, sha256 in zip(hash_there, sums, strict=True):
                    there[file.name] = sha256
                    self._sums.add(self._node, f"{tree.root}/{file.name}", file.size, mtimes[file.name], sha256)
            here |= hashing.result()
        self._sums.save()
        return frozenset(certain | {file.name for file in open_ if here[file.name] == there[file.name]})

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
