"""`sparkdash pull`: fetch a profile's image and weights without a swap."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import LiveLine, print_json_line, print_text
from sparkdash.cli.parameters import AsJson, ProfileName
from sparkdash.errors import AdmissionError, HostError, ProfileError
from sparkdash.units import percent

if TYPE_CHECKING:
    from sparkdash.domain.container import PullProgress
    from sparkdash.domain.profile import Profile
    from sparkdash.domain.state import Snapshot
    from sparkdash.host.runtime import Runtime


def pull(
    profile: ProfileName,
    image_only: Annotated[bool, typer.Option("--image-only", help="Do not fetch the weights.")] = False,
    weights_only: Annotated[bool, typer.Option("--weights-only", help="Do not fetch the image.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing; list missing files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the image and the weights that a profile needs.

    Running engines keep running. Weights go to the Hugging Face cache, if the
    disk has room. An interrupted pull resumes where it ended. With --offline, or
    HF_HUB_OFFLINE=1, the command exits 5 if something is missing. With --json:
    one document per step of progress.

    \b
    Examples:
      sparkdash pull gpt-oss-120b
      sparkdash pull gpt-oss-120b --weights-only
      sparkdash pull gpt-oss-120b --offline
    """
    from sparkdash.cli.local import find_profile

    if image_only and weights_only:
        raise typer.BadParameter("--image-only and --weights-only together leave nothing to fetch.")
    found, world = find_profile(profile)
    if why := found.fetches_nothing:
        raise AdmissionError(f"There is nothing to fetch for {found.name}: {why}.", code="nothing_to_pull")
    if found.cannot_run:
        hint = f"Pull {found.nearest} instead." if found.nearest else None
        raise AdmissionError(f"{found.name} cannot run: {found.cannot_run}.", code="cannot_run", hint=hint)
    order = PullJob(found, not weights_only, not image_only, as_json, world)
    if offline or os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        _look(order)
    else:
        _fetch(order)


@dataclass(frozen=True, slots=True)
class PullJob:
    """Pull of a profile: what to fetch, and the daemon if one answers."""

    profile: Profile
    image: bool
    weights: bool
    as_json: bool
    world: Snapshot | None


def _look(order: PullJob) -> None:
    from sparkdash.cli.local import make_runtime
    from sparkdash.cli.profiles.fetch_weights import print_local_files
    from sparkdash.settings import load_settings

    _must_be_here(order)
    known = load_settings()
    whole = print_local_files(
        order.profile, make_runtime(known), known, order.as_json, image=order.image, weights=order.weights
    )
    if not whole:
        raise typer.Exit(HostError.exit_code)


def _fetch(order: PullJob) -> None:
    from sparkdash.cli.profiles.fetch_weights import WeightsFetch
    from sparkdash.settings import load_settings

    weights = None
    if order.weights and order.profile.weights:
        _must_be_here(order)
        # whether it fits is known before anything comes
        weights = WeightsFetch(order.profile, load_settings(), order.as_json)
    if order.image:
        _fetch_image(order)
    if weights is not None:
        weights.run()
    if order.world is not None:
        from sparkdash.client.client import Client

        with Client() as client:
            client.release(profile=order.profile.name)


def _must_be_here(order: PullJob) -> None:
    from sparkdash.cli.local import on_this_box

    if order.world is not None and not on_this_box(order.world):
        host, name = order.world.daemon.host, order.profile.name
        raise HostError(
            f"The daemon runs on {host}, so the weights of {name} must be fetched there.",
            code="other_box",
            hint=f"Run `sparkdash pull {name}` on {host}; --image-only works from here.",
        )


def _fetch_image(order: PullJob) -> None:
    import asyncio

    from sparkdash.cli.local import local_images, make_runtime, on_this_box
    from sparkdash.client.client import Client
    from sparkdash.domain.container import PullProgress
    from sparkdash.domain.images import BUILT_HERE, how_to_get
    from sparkdash.settings import load_settings

    image, local = order.profile.image, make_runtime(load_settings())
    program = order.world.daemon.runtime if order.world else local.name
    if program == "process":
        return
    if image is None:
        text = f"Profile {order.profile.name} names no image."
        raise ProfileError(text, code="image_missing", hint="Add `image:` to the profile.")
    line = _Line(order.as_json)
    known = local_images(local, [image]).get(image) if on_this_box(order.world) else None
    if known is not None and known.here:
        line.show(PullProgress(image=image, detail="here already", fraction=1.0, done=True))
    elif order.profile.build is not None or (known is not None and image.startswith(BUILT_HERE)):
        raise HostError(f"No registry has {image}.", code="image_missing", hint=how_to_get(order.profile))
    elif order.world is not None:
        with Client() as client:
            for step in client.pull(profile=order.profile.name):
                line.show(step)
    else:
        asyncio.run(_pull_here(local, image, line))
    line.end()


async def _pull_here(runtime: Runtime, image: str, line: _Line) -> None:
    async for step in runtime.pull(image):
        line.show(step)


class _Line:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._line = LiveLine()
        self._image: str | None = None

    def show(self, step: PullProgress) -> None:
        self._image = step.image
        if self._as_json:
            print_json_line(step)
        else:
            share = f"{percent(step.fraction)}  " if step.fraction is not None else ""
            self._line.draw(f"{step.image}  {share}{step.detail}", step.detail)

    def end(self) -> None:
        self._line.clear()
        if self._image is not None and not self._as_json:
            print_text(f"{self._image} is here.")
