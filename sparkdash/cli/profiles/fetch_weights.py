"""Fetch weights with a progress bar, and print what is missing."""

import asyncio
from contextlib import aclosing
from dataclasses import asdict

from sparkdash.cli.local import local_images
from sparkdash.cli.output import LiveLine, print_json, print_json_line, print_note, print_table, print_text
from sparkdash.domain.profile import ModelRef, Profile
from sparkdash.errors import HostError
from sparkdash.host import hub_download
from sparkdash.host.hub_download import KEPT, Hub, Plan, WeightsProgress
from sparkdash.host.inventory import Image
from sparkdash.host.local_weights import Presence, download_command, find_weights, how_to_fix, other_cache
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.units import duration, percent, size

BAR = 20


class WeightsFetch:
    """Download of a profile's weights. The constructor asks the hub for their size and checks the disk space."""

    def __init__(self, profile: Profile, known: Settings, as_json: bool) -> None:
        self._profile = profile
        self._home, self._contained = known.hf_home.expanduser(), known.runtime != "process"
        self._as_json = as_json
        if other := other_cache(self._home):
            print_note(other)
        self._hub = Hub(self._home, endpoint=hub_download.hub_url())
        self._plan: Plan = asyncio.run(self._hub.plan(profile.weights))
        self._hub.check_space(self._plan)

    def run(self) -> None:
        """Raises HostError like `Hub.fetch`, and weights_missing if they stay incomplete."""
        if self._plan:
            try:
                asyncio.run(self._fetch())
            except KeyboardInterrupt:
                print_note(f"Interrupted. {KEPT}")
                raise
        self._judge()

    async def _fetch(self) -> None:
        line, told = LiveLine(), -1
        try:
            async with aclosing(self._hub.fetch(self._plan)) as steps:
                async for step in steps:
                    share = int(100 * step.came_bytes / step.total_bytes) if step.total_bytes else 100
                    if not self._as_json:
                        # a log gets one line every ten percent
                        plain = f"weights {share // 10 * 10} % of {size(step.total_bytes)}"
                        line.draw(progress_text(step), plain)
                    elif share != told or step.done:
                        print_json_line({"weights": [one.repo for one in self._plan], **asdict(step)})
                    told = share
        finally:
            line.clear()  # the reason of an end has a line of its own

    def _judge(self) -> None:
        for ref in dict.fromkeys(self._profile.weights):
            one = find_weights(ref, self._home, contained=self._contained)
            if not one.here:
                raise _not_whole(one, ref)
            if not self._as_json:
                print_text(f"{one.ref} is here, {size(one.size)}.")


def _not_whole(one: Presence, ref: ModelRef) -> HostError:
    if one.broken:
        return HostError(f"{one.ref} cannot be loaded: {one.lacks}.", code="weights_missing", hint=how_to_fix(ref))
    if ref.hf:
        return HostError(
            f"{one.ref} was fetched but is incomplete: {one.lacks}.",
            code="weights_missing",
            hint="Check on the hub which weights it holds, and correct `hf` in the profile.",
        )
    return HostError(
        f"{one.ref} is incomplete and cannot be fetched: {one.lacks}.",
        code="weights_missing",
        hint=f"Download it (`{download_command(one.ref)}`), or set `hf` in the profile.",
    )


def progress_text(step: WeightsProgress) -> str:
    """Format progress: "weights   43 %  ████████░░░░░░░░░░░░  26 of 61 GiB  98 MiB/s  6m02s left"."""
    share = step.came_bytes / step.total_bytes if step.total_bytes else 1.0
    full = int(BAR * share)
    rate = f"  {size(int(step.bytes_per_s))}/s" if step.bytes_per_s else ""
    left = f"  {duration(step.eta_s)} left" if step.eta_s is not None else ""
    came = f"{size(step.came_bytes)} of {size(step.total_bytes)}"
    return f"weights  {percent(share):>5}  {'█' * full}{'░' * (BAR - full)}  {came}{rate}{left}"


def print_local_files(
    profile: Profile, runtime: Runtime, known: Settings, as_json: bool, *, image: bool, weights: bool
) -> bool:
    names = [profile.image] if image and profile.image else []
    images = local_images(runtime, names)
    models = {
        one.ref: find_weights(one, known.hf_home.expanduser(), contained=runtime.containerised)
        for one in profile.weights
        if weights
    }
    if as_json:
        print_json(
            {"profile": profile.name, "image": next(iter(images.values()), None), "weights": list(models.values())}
        )
    else:
        rows = [*(_row("image", one.name, one) for one in images.values())]
        rows += [("image", name, "not known") for name in names if name not in images and runtime.containerised]
        rows += [_row("weights", ref, one) for ref, one in models.items()]
        print_table(("needs", "which", "here"), rows, "<<<")
    if not all(one.here for one in models.values()) and (other := other_cache(known.hf_home.expanduser())):
        print_note(other)
    found: list[Image | Presence] = [*images.values(), *models.values()]
    return all(one.here for one in found)


def _row(kind: str, name: str, one: Image | Presence) -> tuple[str, str, str]:
    if one.here:
        return kind, name, size(one.size)
    why = f": {one.lacks}" if isinstance(one, Presence) and one.lacks else ""
    came = f", {size(one.size)} came" if isinstance(one, Presence) and one.size else ""
    return kind, name, f"missing{why}{came}"
