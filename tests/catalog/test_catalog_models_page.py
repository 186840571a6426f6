"""docs/models.md is current: its table is made from the shipped profiles. SPARKDASH_GOLDEN=write makes it anew."""

import os
import re
from pathlib import Path

from sparkdash import catalog
from sparkdash.domain.images import ImageOrigin, image_origin
from sparkdash.domain.profile import Profile
from sparkdash.engines.memory_terms import BOX_BYTES
from sparkdash.engines.registry import adapter_of, estimate_launch
from sparkdash.paths import shipped_profiles
from sparkdash.units import DASH, gib, number

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
PAIR = ("gpt-oss-120b/gguf", "gpt-oss-20b")
"""The two for the first hour; tests/supervisor/test_supervisor_first_pair.py shows that they fit."""
PROFILES = catalog.load_catalog([shipped_profiles()]).profiles
BEGIN, END = "<!-- table: made from profiles/ -->", "<!-- end of the table -->"
HEAD = ("profile", "what it is", "engine, boxes", "GiB a box", "tok/s")


def table() -> str:
    rows = [HEAD, ("---",) * len(HEAD), *(_row(one) for one in PROFILES.values() if _can_be_had(one))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _can_be_had(profile: Profile) -> bool:
    """Whether the profile can run, and its image can be pulled or built."""
    return profile.cannot_run is None and (
        profile.image is None or image_origin(profile.image, profile.build) is not ImageOrigin.NONE
    )


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def _row(profile: Profile) -> tuple[str, ...]:
    need = estimate_launch(profile, {}, BOX_BYTES)
    best = catalog.summarize(profile, adapter_of(profile)).published_decode_tok_s
    engine = profile.engine.value + (f", {profile.nodes}" if profile.nodes > 1 else "")
    return (f"`{profile.name}`", profile.about, engine, gib(need.total_bytes, 0).removesuffix(" GiB"), number(best, 1))


def test_the_table_is_the_one_of_today_s_profiles() -> None:
    """Every shipped profile that can be had, with its memory and best published rate."""
    text = PAGE.read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    if os.environ.get("SPARKDASH_GOLDEN") == "write":
        PAGE.write_text(with_table(text))
    assert PAGE.read_text() == with_table(text)


def test_the_page_says_that_nothing_was_run_on_a_spark_here_and_names_the_pair() -> None:
    """Honest before the table, and the pair exists."""
    text = PAGE.read_text().partition(BEGIN)[0]
    assert "None of these profiles was run on a Spark by us" in text
    for name in PAIR:
        assert name in PROFILES
        assert f"sparkdash pull {name}" in text


def test_what_the_page_recommends_can_be_pulled_or_built_for_one_spark() -> None:
    told = PAGE.read_text().partition("## How to choose")[2].partition("## All profiles")[0]
    names = re.findall(r"`([^`]+)`", told)
    assert len(names) >= 15
    for name in names:
        profile = PROFILES[name]
        assert profile.image is not None
        assert (profile.nodes, profile.cannot_run) == (1, None)
        assert image_origin(profile.image, profile.build) is not ImageOrigin.NONE, name


def test_what_to_take_first_exists_for_as_many_boxes_at_the_rate_that_it_says() -> None:
    told = PAGE.read_text().partition("## What to take first")[2].partition("\n\n**")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()[4:]]
    assert len(rows) >= 7
    for boxes, _, names, _, rates in rows:
        for name in re.findall(r"`([^`]+)`", names):
            profile = PROFILES[name]
            assert (profile.nodes, profile.cannot_run) == (int(boxes), None), name
            best = catalog.summarize(profile, adapter_of(profile)).published_decode_tok_s
            assert rates == DASH or rates.startswith(number(best, 1)), name
