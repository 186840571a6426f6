"""Images of profiles on this box, and the rows of `sparkdash profiles` with the state that says what can be done."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkdash.domain.images import ImageOrigin, ImageState, ImageUser, Provenance, how_to_get, image_state
from sparkdash.domain.profile import Profile, ProfileSummary
from sparkdash.domain.state import Snapshot
from sparkdash.errors import SparkdashError
from sparkdash.host.inventory import ProfileStock
from sparkdash.units import DASH, gib, number, size


@dataclass(frozen=True, slots=True)
class ProfileImage:
    """Image of one profile: its state, what it was built from, and how it is got if it is not here."""

    state: ImageState
    provenance: Provenance | None = None
    hint: str | None = None


def image_cell(one: ProfileImage | None, bytes_here: int | None) -> str:
    if one is None:
        return DASH
    if one.state in (ImageState.BUILT, ImageState.PULLED, ImageState.OLDER):
        return size(bytes_here) + (", older" if one.state is ImageState.OLDER else "")
    how = {
        ImageState.TO_PULL: ImageOrigin.PULL,
        ImageState.TO_BUILD: ImageOrigin.BUILD,
        ImageState.NOT_TO_BE_HAD: ImageOrigin.NONE,
    }
    return how[one.state].value if one.state in how else DASH


def image_words(profile: ImageUser, one: ProfileImage) -> str | None:
    came = _came_from(one.provenance) if one.provenance else ""
    words = {
        ImageState.BUILT: f"built here{came}",
        ImageState.OLDER: f"built here{came}; OLDER than its `build:`, see `sparkdash build {profile.name}`",
        ImageState.PULLED: "here" if profile.build is None else "here, but not built by `sparkdash build`",
    }
    return words.get(one.state, one.hint)


def _came_from(known: Provenance) -> str:
    source = f" from {known.source}" if known.source else ""
    commit = f"@{known.revision[:12]}" if known.revision else ""
    day = f" on {known.created[:10]}" if known.created else ""
    version = f" by sparkdash {known.version}" if known.version else ""
    return f"{source}{commit}{day}{version}"


def image_states(
    profiles: Sequence[ProfileSummary], stock: Mapping[str, ProfileStock], *, containerised: bool
) -> dict[str, ProfileImage]:
    """Judge the image of each profile that `stock` knows; plain processes need none."""
    known = [one for one in profiles if one.name in stock]
    if not containerised:
        return {one.name: ProfileImage(ImageState.NOT_NEEDED) for one in known}
    images = {one.name: stock[one.name].image for one in known}
    here = {name: None if image is None else image.here for name, image in images.items()}
    found = _provenance(one.image for one in known if one.build and here[one.name])
    current = _current() if found else {}
    return {one.name: _judged(one, here[one.name], found, current) for one in known}


def profile_image(profile: Profile, *, here: bool | None) -> ProfileImage:
    found = _provenance([profile.image] if here and profile.image else [])
    return _judged(profile, here, found, _current() if found else {})


def _judged(
    profile: ImageUser, here: bool | None, found: Mapping[str, Provenance], current: Mapping[str, str]
) -> ProfileImage:
    known = found.get(profile.image or "")
    state = image_state(
        profile, here=here, digest=known.digest if known else None, current=current.get(profile.image or "")
    )
    lacks = state in (ImageState.TO_BUILD, ImageState.TO_PULL, ImageState.NOT_TO_BE_HAD)
    return ProfileImage(state, known, how_to_get(profile) if lacks else None)


def _provenance(images: Iterable[str | None]) -> dict[str, Provenance]:
    from sparkdash.host.podman.image_build import local_images
    from sparkdash.settings import load_settings

    names = [*dict.fromkeys(filter(None, images))]
    runtime = load_settings().runtime
    if not names or runtime == "process":
        return {}
    try:
        found = asyncio.run(local_images(names, runtime))
    except (SparkdashError, OSError):
        return {}
    return {name: one.provenance for name, one in found.items() if one.provenance is not None}


def _current() -> dict[str, str]:
    from sparkdash.cli.local import configured_catalog
    from sparkdash.host.podman.image_build import current_digests

    return current_digests(configured_catalog().profiles.values())


HEAD = ("profile", "engine", "needs", "tok/s", "drafts", "image", "weights", "state")
ALIGN = "<<>><>><"
LEAST = ("drafts", "engine", "needs", "tok/s")


def list_row(
    summary: ProfileSummary, world: Snapshot | None, here: ProfileStock | None, image: ProfileImage | None,
    runtime: str, boxes: int,
) -> tuple[str, ...]:  # fmt: skip
    image_bytes = here.image.size if here is not None and here.image is not None else None
    return (
        summary.name,
        summary.engine.value,
        gib(summary.needs_bytes, 0),
        number(summary.published_decode_tok_s, 1),
        summary.speculation or DASH,
        image_cell(None if runtime == "process" else image, image_bytes),
        _weights(summary, here),
        row_state(summary, world, here, image, runtime, boxes),
    )


def runtime_note(images: Iterable[ProfileImage], runtime: str, *, installed: bool) -> str | None:
    """Say why images are unknown or missing all at once; None where the runtime has answered, or none is needed."""
    states = {one.state for one in images} - {ImageState.NOT_NEEDED}
    if states and not installed:
        return f"{runtime} is not installed, so no image is here; `sparkdash doctor podman` says what to do."
    if ImageState.UNKNOWN in states:
        return f"{runtime} does not answer, so its images are unknown; `sparkdash doctor podman` says why."
    return None


def _weights(summary: ProfileSummary, here: ProfileStock | None) -> str:
    if here is None or here.weights is None:
        return DASH
    if here.weights.here:
        return size(here.weights.size)
    if here.weights.broken:
        return "not whole"
    return "to pull" if all(ref.hf for ref in summary.weights) else "missing"


def row_state(
    summary: ProfileSummary, world: Snapshot | None, here: ProfileStock | None, image: ProfileImage | None,
    runtime: str, boxes: int,
) -> str:  # fmt: skip
    """Say what a profile does or what it lacks; the first thing in the way comes first."""
    if summary.cannot_run:
        return "cannot run"
    if summary.engine.is_remote:
        return "elsewhere"
    if world is not None and (parked := world.parked.get(summary.name)):
        return f"parked: {parked.failure.code}"
    if world is not None and (engine := world.engines.get(summary.name)):
        return engine.state.value + (", edited" if world.is_outdated(summary.name) else "")
    if summary.least_nodes > boxes:
        return f"needs {summary.least_nodes} boxes"
    idle = "stopped" if world is not None else "no daemon" if summary.engine.is_external else "can start"
    return _lacking(summary, here, image, runtime) or idle


def _lacking(
    summary: ProfileSummary, here: ProfileStock | None, image: ProfileImage | None, runtime: str
) -> str | None:
    state = image.state if image is not None else ImageState.NOT_NEEDED
    weights = here.weights if here is not None else None
    lacks = weights is not None and not weights.here
    if state is ImageState.NOT_TO_BE_HAD:
        return "no image"
    if weights is not None and weights.broken:
        return "weights not whole"
    if lacks and not all(ref.hf for ref in summary.weights):
        return "no weights"
    if state is ImageState.UNKNOWN:
        return f"{runtime} silent"
    if state is ImageState.TO_BUILD:
        return "can be built"
    return "can be pulled" if lacks or state is ImageState.TO_PULL else None
