"""`sparkdash memory`: show who holds the box's memory and how to free it, and the engines' compile caches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import print_json, print_note, print_table, print_text
from sparkdash.cli.parameters import AsJson
from sparkdash.errors import DaemonError
from sparkdash.units import GIB, MIB, age, one_line, size

if TYPE_CHECKING:
    from sparkdash.domain.memory import Holding, MemoryAccount
    from sparkdash.host.compile_caches import CompileCache

SMALL = 16 * MIB
HIDDEN = 256 * MIB
NAMED, NAMED_COUNT = GIB, 4
HEAD = ("held", "by", "kind", "user", "procs", "gpu", "swap", "what", "to free it")
ALIGN = "><<<>>><<"
DROPPED = ("what", "swap", "user", "procs", "gpu", "kind")


def memory(
    caches: Annotated[bool, typer.Option("--caches", help="List the engines' compile caches on disk instead.")] = False,
    prune: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove compile caches without a start for so long: 30d, 4w.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --prune: only show what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show who holds the box's memory: every byte with its holder.

    Lists engines, other containers, services, programs, shared memory, memory of the GPU driver and the kernel, the
    page cache, and free memory. The rows add up to the box's memory. The last column is the command that
    frees a row. Without a daemon, the command looks itself and finds engines by their containers' labels.

    Run it as root to see processes and files of other users too.

    With --caches it lists what each image has compiled for a model and keeps for the next start. Another image under
    the same name has a cache of its own; --prune removes old ones, and never one of an engine that runs.

    \b
    Examples:
      sparkdash memory
      sparkdash memory --caches
      sparkdash memory --prune 30d --dry-run
      sparkdash memory --json | jq '.holdings[] | [.bytes, .kind, .name]'
    """
    if caches or prune:
        _show_caches(prune, dry_run=dry_run, as_json=as_json)
    elif as_json:
        print_json(read_account())
    else:
        print_account(read_account())


def read_account() -> MemoryAccount:
    """Read the daemon's memory account, or this box's own when no daemon answers."""
    from sparkdash.client.client import Client

    client = Client()
    try:
        with client:
            return client.memory()
    except DaemonError:
        if client.address.given:  # another box's
            raise
        import asyncio

        from sparkdash import paths, settings
        from sparkdash.cli.local import make_runtime
        from sparkdash.host.box import BoxReader
        from sparkdash.host.memory.account import Sources, account_for_memory

        runtime = make_runtime(settings.load_settings())
        return asyncio.run(account_for_memory(Sources(runtime=runtime, gpu=BoxReader().gpu, owner=paths.owner())))


def print_account(found: MemoryAccount) -> None:
    print_text(f"{_head(found)}\n")
    rows = [*_rows(found)]
    used = [i for i in range(len(HEAD)) if any(row[i] for row in rows)]
    head, align = [HEAD[i] for i in used], "".join(ALIGN[i] for i in used)
    print_table(head, [[row[i] for i in used] for row in rows], align, [title for title in DROPPED if title in head])
    if told := [*_tail(found)]:
        print_text("\n".join(("", *told)))


def _rows(found: MemoryAccount) -> Iterator[tuple[str, ...]]:
    large = [one for one in found.holdings if one.bytes >= SMALL or one.kind.value in ("engine", "free")]
    small = [one.bytes for one in found.holdings if one not in large]
    yield from map(_row, large)
    if small:
        yield (size(sum(small)), f"{len(small)} smaller", *[""] * (len(HEAD) - 2))


def _head(found: MemoryAccount) -> str:
    swap = f", {size(found.swap_used)} in swap" if found.swap_used else ""
    return f"{size(found.total)} in all, {size(found.available)} available{swap}"


def _row(one: Holding) -> tuple[str, ...]:
    return (
        size(one.bytes),
        one.name,
        f"{one.kind.value}, comes back" if one.reclaimable else one.kind.value,
        one.user or "",
        str(one.processes) if one.processes else "",
        size(one.gpu_bytes) if one.gpu_bytes else "",
        size(one.swap_bytes) if one.swap_bytes else "",
        one.what or "",
        one.remedy or "",
    )


def _tail(found: MemoryAccount) -> Iterator[str]:
    yield from found.notes
    if found.unreadable or any(one.kind.value == "unseen" and one.bytes >= HIDDEN for one in found.holdings):
        yield "Some processes are hidden from this user: `sudo sparkdash memory` shows them."
    if found.mlocked_bytes and found.mlocked_bytes >= SMALL:
        yield (
            f"{size(found.mlocked_bytes)} are locked in memory, neither swapped nor evicted. "
            "The rows above include them."
        )


def largest_holders(found: MemoryAccount) -> Iterator[str]:
    """Describe the largest foreign holders, each with the command that frees its memory."""
    for one in found.foreign(NAMED)[:NAMED_COUNT]:
        told = one.what if one.what != one.name else None
        about = ", ".join(filter(None, (told, f"pid {one.pid}" if one.pid and not one.proposed_remedy else None)))
        what = f" ({one_line(about)})" if about else ""
        yield f"{size(one.bytes)} {one_line(one.name)}{what}" + (
            f": {one.proposed_remedy}" if one.proposed_remedy else ""
        )


def _show_caches(prune: str | None, *, dry_run: bool, as_json: bool) -> None:
    """List the engines' compile caches of this box, and remove those without a start for `prune`."""
    from sparkdash.cli.history_tables import parse_moment
    from sparkdash.host.compile_caches import remove

    found = _read_caches()
    before = parse_moment(prune, time.time()) if prune else float("-inf")
    old = [one for one in found if one.started_at < before and not one.in_use]
    stay = {one.path: remove(one) for one in old if not dry_run}
    if as_json:
        told = [{**asdict(one), "old": one in old, "removed": stay.get(one.path, "") is None} for one in found]
        return print_json(told)
    shown = old if prune else found
    head = ("image", "id", "model", "size", "last start", "")
    print_table(head, [_cache_row(one) for one in shown], "<<<>><", ("id",))
    for path, why in stay.items():
        if why:
            print_note(f"{path} stays: {why}.")
    total = size(sum(one.bytes for one in shown if not stay.get(one.path)))
    did = "Would remove" if dry_run else "Removed"
    return print_text(f"{did} {total}." if prune else f"{total} in all.")


def _cache_row(one: CompileCache) -> tuple[str, ...]:
    since = f"{age(time.time() - one.started_at)} ago"
    return (one.image, one.image_id or "-", one.weights or "-", size(one.bytes), since, "in use" if one.in_use else "")


def _read_caches() -> list[CompileCache]:
    import asyncio

    from sparkdash.cli.local import make_runtime
    from sparkdash.domain.container import LABEL_PROFILE, ContainerState
    from sparkdash.engines.containers import CACHES
    from sparkdash.host.compile_caches import list_caches
    from sparkdash.settings import load_settings

    known = load_settings()
    runtime = make_runtime(known)
    engines = asyncio.run(runtime.containers({LABEL_PROFILE: ""})) if runtime.containerised else []
    live = [one for one in engines if one.state is not ContainerState.EXITED]
    return list_caches(known.cache_dir.expanduser() / CACHES, {path for one in live for path in one.mounts})
