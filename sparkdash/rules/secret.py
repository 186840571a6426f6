"""Rule about secrets in a profile's file; a violation also keeps the profile from being started.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.catalog.document import KeyPath, walk_strings
from sparkdash.domain.profile import Profile
from sparkdash.engines.rule import Hit, Rule, Severity
from sparkdash.redaction import is_secret, is_secret_flag, is_secret_variable, masked_values, never

NAME = "secret-literal"
_KEYS = {
    "env": is_secret_variable, "env_by_node": is_secret_variable, "args": is_secret_flag, "command": never,
    "request": never, "request_set": never, "modes": never,
}  # fmt: skip
"""Parts of a profile that reach an engine or a client, each with the test that marks a name as secret."""


def secret_at(profile: Profile) -> str | None:
    """Find the first secret in the profile, as `env.HF_TOKEN`; None without one, or where silenced."""
    if NAME in profile.silence:
        return None
    return next((".".join(map(str, hit.path)) for hit in _secrets(profile)), None)


def redact_profile(profile: Profile) -> Profile:
    """Mask every secret in the profile, for other readers, silenced or not."""
    masks = {key: masked_values(getattr(profile, key), by_name) for key, by_name in _KEYS.items()}
    return Profile.model_validate({**dict(profile), **masks})


def _secrets(profile: Profile) -> Iterator[Hit]:
    for key, by_name in _KEYS.items():
        for path, text in walk_strings((key,), getattr(profile, key)):
            name = next((part for part in reversed(path[1:]) if isinstance(part, str)), "")
            if is_secret(text, name, by_name):
                yield Hit(path, "looks like a secret", _by_reference(path))


def _by_reference(path: KeyPath) -> str:
    name = path[-1] if path[0] in ("env", "env_by_node") else "NAME"
    return f"Write `env_from: [{name}]`, set it in the daemon's environment, and revoke this one."


RULES = (
    Rule(
        NAME, Severity.ERROR, "a token in a file", "argv, labels and logs are visible to others", _secrets, always=True
    ),
)
