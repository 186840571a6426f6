"""`sparkdash memory --caches`: list what engines compiled and kept on disk, and remove what is not used any more."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from sparkdash.cli.output import print_fitting_table, print_json, print_note, print_text
from sparkdash.units import age, size

if TYPE_CHECKING:
    from sparkdash.host.compile_caches import CompileCache

HEAD = ("image", "id", "model", "size", "last start", "")


def show_caches(prune: str | None, *, dry_run: bool, as_json: bool) -> None:
    """List the engines' compile caches of this box, and remove those without a start for `prune`.

    Raises:
        SparkdashError: the runtime does not tell what its containers have mounted, or `prune` is no time.
    """
    from sparkdash.cli.history_tables import parse_moment
    from sparkdash.host.compile_caches import remove

    found = _read_caches()
    before = parse_moment(prune, time.time()) if prune else float("-inf")
    old = [one for one in found if one.started_at < before and not one.in_use]
    stay = {one.path: remove(one) for one in old if not dry_run}
    if as_json:
        told = [{**asdict(one), "old": one in old, "removed": stay.get(one.path, "") is None} for one in found]
        print_json(told)
        return
    shown = old if prune else found
    print_fitting_table(HEAD, [_row(one) for one in shown], "<<<>><", ("id",))
    for path, why in stay.items():
        if why:
            print_note(f"{path} stays: {why}.")
    total = size(sum(one.bytes for one in shown if not stay.get(one.path)))
    print_text(f"{'Would remove' if dry_run else 'Removed'} {total}." if prune else f"{total} in all.")


def _row(one: CompileCache) -> tuple[str, ...]:
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
