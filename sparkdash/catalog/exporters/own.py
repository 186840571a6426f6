"""What of a container is sparkdash's own business and means nothing to another tool."""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import AUTO, Profile

PLACE = "/sparkdash/"
"""Where sparkdash puts its caches in a container; variables that point there go with them."""

ADDRESS = ("--host", "--port")
NAMES = "--served-model-name"


def environment(spec: ContainerSpec) -> dict[str, str]:
    """The variables that the engine itself is given."""
    return {name: text for name, text in spec.env.items() if not text.startswith(PLACE)}


def words(spec: ContainerSpec, address: dict[str, str]) -> Iterator[str]:
    """The command, with what `address` gives for --host and --port, and without sparkdash's own alias."""
    before = flag = ""
    for word in spec.argv:
        flag = word if word.startswith("--") else flag
        if not (flag == NAMES and word == AUTO):
            yield address.get(before, word) if before in ADDRESS else word
        before = word


def lost(profile: Profile, *keys: str) -> list[str]:
    """Comment lines that name those of `keys` that the profile gives and the format cannot say."""
    given = [key for key in keys if getattr(profile, key) != type(profile).model_fields[key].get_default()]
    return [f"# Has no place for: {', '.join(given)} (see `sparkdash profiles show {profile.name}`)."] if given else []
