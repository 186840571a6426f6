"""Summary of a profile for lists and clients.

Pure.
"""

from __future__ import annotations

from typing import Protocol

from sparkdash.domain.memory import Need
from sparkdash.domain.profile import EngineKind, Profile, ProfileSummary, Published, SpeedUp
from sparkdash.engines.generic.known_servers import known_server


class SummaryAdapter(Protocol):
    """Part of EngineAdapter that a summary needs; declared here because the catalog does not know the engines."""

    def context(self, profile: Profile) -> int | None:
        """Configured context length in tokens."""
        ...

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation, such as "eagle3 k=1"; None without."""
        ...


def summarize(
    profile: Profile,
    adapter: SummaryAdapter,
    need: Need | None = None,
    *,
    sees: bool | None = None,
    speed_up: SpeedUp | None = None,
) -> ProfileSummary:
    """Summarize a profile for a list.

    `need`: the known need of a launch; None: the declared one. `sees`: whether the model reads images, None while
    unknown. `speed_up`: measured of a profile of this name; it counts while the profile is as it was measured. The rate
    is the best published decode rate. With whole-request rates alone, the best of those counts, and the note says so.
    """
    rate, note = _best(profile.published)
    known = known_server(profile)
    return ProfileSummary(
        name=profile.name,
        about=profile.about,
        engine=profile.engine,
        engine_version=profile.engine_version,
        image=profile.image,
        build=profile.build,
        built_by=profile.built_by,
        weights=profile.weights,
        serves=profile.serves,
        modes=tuple(profile.modes),
        context=adapter.context(profile),
        needs_bytes=need.total_bytes if need else profile.memory.total_bytes,
        nodes=profile.nodes,
        cannot_run=profile.cannot_run,
        nearest=profile.nearest,
        published_decode_tok_s=rate,
        published_note=note,
        speculation=adapter.speculation(profile),
        fingerprint=profile.fingerprint,
        simulated=profile.engine is EngineKind.SIM,
        sees=sees,
        server=known.title if known else None,
        speed_up=speed_up if speed_up and speed_up.fingerprint in (None, profile.fingerprint) else None,
    )


def _best(published: tuple[Published, ...]) -> tuple[float | None, str | None]:
    decode = [(row.decode_tok_s, row) for row in published if row.decode_tok_s is not None]
    whole = [(row.e2e_tok_s, row) for row in published if row.e2e_tok_s is not None]
    if not decode and not whole:
        return None, None
    rate, row = max(decode or whole, key=lambda pair: pair[0])
    note = f"{row.workload} ({row.source})"
    return rate, note if decode else f"{note}, whole request with prefill"
