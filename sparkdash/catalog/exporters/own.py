"""Parts of a container that only sparkdash uses, and that exports leave out."""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import AUTO, Profile

PLACE = "/sparkdash/"
"""Prefix of sparkdash's caches in a container; variables that point there are left out with them."""

ADDRESS = ("--host", "--port")
NAMES = "--served-model-name"


def engine_environment(spec: ContainerSpec) -> dict[str, str]:
    """Return the variables that the engine itself gets."""
    return {name: text for name, text in spec.env.items() if not text.startswith(PLACE)}


def command_words(spec: ContainerSpec, address: dict[str, str]) -> Iterator[str]:
    """Yield the command's words with `address` for --host and --port, without sparkdash's own alias."""
    before = flag = ""
    for word in spec.argv:
        flag = word if word.startswith("--") else flag
        if not (flag == NAMES and word == AUTO):
            yield address.get(before, word) if before in ADDRESS else word
        before = word


def lost_comments(profile: Profile, *keys: str) -> list[str]:
    """Word comment lines for those of `keys` that the profile has and the format cannot express."""
    given = [key for key in keys if getattr(profile, key) != type(profile).model_fields[key].get_default()]
    return [f"# Has no place for: {', '.join(given)} (see `sparkdash profiles show {profile.name}`)."] if given else []
