"""The profiles that come with sparkdash."""

from __future__ import annotations

import re
import time

import pytest

from sparkdash import catalog
from sparkdash.domain.images import ImageOrigin, image_origin
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.request import Task
from sparkdash.engines.registry import adapter, adapter_of
from sparkdash.paths import shipped_profiles

CATALOG = catalog.load_catalog([shipped_profiles()])
PAGE = r"[^,]+, [^,]+, [a-z-]+(\.[a-z-]+)+/[\w./-]+"
"""Author, title or date, and address."""
REPOSITORY = r"[\w.-]+/[\w.-]+((@[0-9a-f]{7})?, [\w./-]+|#\d+)"
"""Repository with file, and mostly commit; or with the number of a thread."""


def test_every_file_loads_without_problems() -> None:
    assert CATALOG.problems == ()
    assert {"gpt-oss-120b", "qwen3-coder-30b-nvfp4", "qwen3-coder-30b-nvfp4/eagle3", "qwen3.5-122b/mtp-2"} <= set(
        CATALOG.profiles
    )


@pytest.mark.parametrize("profile", CATALOG.profiles.values(), ids=lambda p: p.name)
def test_every_figure_has_its_source_document(profile: Profile) -> None:
    """A published figure names what a reader can open; memory figures name theirs."""
    assert all(re.fullmatch(f"{PAGE}|{REPOSITORY}", row.source) for row in profile.published)
    known = (profile.memory.weights_gib, profile.memory.kv_gib, profile.memory.overhead_gib)
    assert profile.memory.source or not any(known)


@pytest.mark.parametrize(
    "profile", [p for p in CATALOG.profiles.values() if p.image and p.engine is EngineKind.VLLM], ids=lambda p: p.name
)
def test_vllm_is_never_left_to_its_default_utilization(profile: Profile) -> None:
    """The default takes more than a GB10 has, and the box dies with it."""
    assert "gpu-memory-utilization" in profile.args


@pytest.mark.parametrize(("name", "context", "rate", "speculation"), [
    ("gpt-oss-120b", 128000, 59.0, None), ("gpt-oss-120b/enforce-eager", 128000, 26.0, None),
    ("qwen3-coder-30b-nvfp4", 32768, 68.0, None), ("qwen3-coder-30b-nvfp4/eagle3", 32768, 73.9, "eagle3 k=1"),
    ("qwen3.5-122b", 32768, 28.3, None), ("qwen3.5-122b/hybrid", 32768, 30.8, None),
    ("qwen3.5-122b/mtp-2", 262144, 51.0, "mtp k=2"), ("qwen3.5-122b/mtp-2-turboquant", 262144, 39.0, "mtp k=2"),
])  # fmt: skip
def test_the_summaries_show_what_was_published(name: str, context: int, rate: float, speculation: str | None) -> None:
    profile = CATALOG.profiles[name]
    found = catalog.summarize(profile, adapter(profile.engine))
    assert (found.context, found.published_decode_tok_s, found.speculation) == (context, rate, speculation)


@pytest.mark.parametrize("variant", ["mtp-1", "mtp-2"])
def test_what_cannot_run_says_why_and_what_to_use(variant: str) -> None:
    """The coder has no MTP head; EAGLE3 is the nearest, on the image that can be had."""
    profile = CATALOG.profiles[f"qwen3-coder-30b-nvfp4/{variant}"]
    assert "no MTP head" in (profile.cannot_run or "")
    assert profile.nearest == "qwen3-coder-30b-nvfp4/prebuilt-eagle3"


def test_no_profile_sends_to_one_that_cannot_run_or_whose_image_nobody_has() -> None:
    profiles = CATALOG.profiles
    sent_to = [profiles[one.nearest] for one in profiles.values() if one.nearest]
    assert sent_to
    assert not [one.name for one in sent_to if one.cannot_run]
    assert not [one.name for one in sent_to if image_origin(one.image or "", one.build) is ImageOrigin.NONE]


def test_what_has_no_image_cannot_run() -> None:
    """Nothing is invented: where no source names or builds an image, the profile says why it does not start."""
    assert all(profile.cannot_run for profile in CATALOG.profiles.values() if profile.image is None)


def test_the_whole_catalog_loads_in_little_time() -> None:
    """Under 150 ms of CPU here (about 90 measured); ten times that would be a parser gone wrong, not a busy box."""
    before = time.process_time()
    catalog.load_catalog([shipped_profiles()])
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize(("name", "tasks"), [
    ("gpt-oss-20b", {Task.GENERATE}), ("qwen3-vl-embedding-8b", {Task.EMBED, Task.RERANK}),
    ("qwen3-vl-reranker-8b/2b", {Task.EMBED, Task.RERANK}), ("qwen3-asr-1.7b", {Task.TRANSCRIBE}),
    ("qwen3-asr-0.6b", {Task.TRANSCRIBE}), ("kokoro", {Task.SPEAK}), ("voxtral-mini-4b-realtime", set()),
    ("qwen3-vl-30b-a3b", {Task.GENERATE}),
])  # fmt: skip
def test_each_kind_of_model_is_asked_only_for_its_own_work(name: str, tasks: set[Task]) -> None:
    """So that `auto` never means a speech or search model for a chat."""
    profile = CATALOG.profiles[name]
    assert adapter_of(profile).tasks(profile, None) == tasks


def test_every_model_of_today_names_its_source() -> None:
    """Each file names the documents, repositories or pages that its flags are from, in its first lines or at a variant."""
    for file in shipped_profiles().glob("*.yaml"):
        text = file.read_text()
        assert re.search(r"Labs|BLOG|[\w.-]+/[\w.-]+@[0-9a-f]{7}|dgx-spark-playbooks@|README|documentation", text), (
            file.name
        )
