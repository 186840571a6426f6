"""Image of a profile, fetched on request: by the runtime, unless it is one that is built.

Owns: which images no registry is asked for. Must not know how an image is fetched or built.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from sparkdash.domain.container import PullProgress
from sparkdash.domain.images.availability import how_to_get
from sparkdash.domain.images.origin import ImageOrigin, image_origin
from sparkdash.domain.profile import Profile
from sparkdash.errors import HostError
from sparkdash.host.runtime import Runtime


async def fetch_image(runtime: Runtime, profile: Profile, image: str) -> AsyncIterator[PullProgress]:
    """Fetch the profile's image; one that is built here already is only reported.

    Raises:
        HostError: image_missing (no registry has it), and as `Runtime.pull`.
    """
    if image_origin(image, profile.build) is ImageOrigin.PULL:
        async for step in runtime.pull(image):
            yield step
    elif await runtime.image_id(image) is None:
        raise HostError(f"No registry has {image}.", code="image_missing", hint=how_to_get(profile))
    else:
        yield PullProgress(image=image, detail="here already", fraction=1.0, done=True)
