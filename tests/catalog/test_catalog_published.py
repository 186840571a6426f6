"""The published figures of the shipped profiles, against the tables they were read in.

tests/data/published/figures.csv holds the 327 figures of four documents: one row each, blanks included, in our words
for system, workload and metric; percentages as parts of one, a range as `low..high`.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkdash import catalog
from sparkdash.domain.profile import Profile, Published
from sparkdash.paths import shipped_profiles

FIGURES = Path(__file__).parents[1] / "data" / "published" / "figures.csv"
PROFILES = catalog.load_catalog([shipped_profiles()]).profiles

RATES = ("decode_tok_s", "prefill_tok_s", "e2e_tok_s", "aggregate_tok_s", "tok_s")
METRICS = (*RATES, "kv_tokens", "prefix_hit_rate", "math_score", "start_s", "link_gbit_s", "copy_mb_s")

CODER = "qwen3-coder-30b-nvfp4"
BUILDS = {"turbo SM121": "", "turbo dual": "turbo-dual", "turbo2 dual": "turbo2", "vLLM-next": "vllm-next"}
ARMS = {"vanilla": "", "EAGLE3": "eagle3", "MTP=1": "mtp-1", "MTP=2": "mtp-2"}

PROFILE_OF = {
    "Qwen3-235B two nodes": "qwen3-235b",
    "Qwen3-235B NVIDIA TRT-LLM": "qwen3-235b/nvidia-trtllm",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-120b enforce-eager": "gpt-oss-120b/enforce-eager",
    "Qwen3-30B-A3B community": "qwen3-30b-a3b",
    "Qwen3.6-27B FP8 NGC": "qwen3.6-27b/fp8-ngc",
    "Qwen3.6-27B FP8 mitkox": "qwen3.6-27b/fp8-mitkox",
    "qwen36-27b-dflash-spark vLLM": "qwen3.6-27b/dflash",
    "qwen36-27b-dflash-spark Lucebox": "qwen3.6-27b/dflash-ddtree",
    "qwen36-27b-atlas-dflash-gb10": "qwen3.6-27b/atlas-dflash",
    "qwen36-flashqla-dflash-longctx-spark": "qwen3.6-27b/flashqla-longctx",
    "qwen36-aeon-combined-flashqla-dflash-spark": "qwen3.6-27b/aeon",
    "(planned) qwen36-27b-ddtree-spark": "qwen3.6-27b/ddtree",
    "(planned) minimax-m27-llamacpp-spark": "minimax-m2.7",
    "qwen36-35b-a3b-dflash-spark": "qwen3.6-35b-a3b",
    "qwen35-atlas-dflash-nvfp4-spark1": "qwen3.5-27b/atlas-dflash",
    "vllm-prefill-optimized-spark": "qwen3.5-27b",
    "vllm-prefill-flashqla-hkv-spark": "qwen3.5-27b/flashqla-hkv",
    "prefill-fusions/flashqla-megafusion-3300-spark": "qwen3.5-27b/flashqla-megafusion",
    "prefill-fusions/flashqla-megafusion-3500-spark1-report": "qwen3.5-27b/flashqla-megafusion",
    "Qwen3.5-122B-A10B baseline": "qwen3.5-122b",
    "Qwen3.5-122B-A10B hybrid": "qwen3.5-122b/hybrid",
    "Qwen3.5-122B-A10B hybrid MTP-2": "qwen3.5-122b/hybrid-mtp-2",
    "Qwen3.5-122B-A10B v2": "qwen3.5-122b/mtp-2",
    "Qwen3.5-122B-A10B v2-tq": "qwen3.5-122b/mtp-2-turboquant",
    "Qwen3.5-35B-A3B v2": "qwen3.5-35b-a3b",
} | {
    f"{build} {arm}": f"{CODER}/{'-'.join(filter(None, (a, b)))}".rstrip("/")
    for build, a in BUILDS.items()
    for arm, b in ARMS.items()
}

DERIVED = "computed from rows that are there"
SETTING = "a setting, which the profile's own flags show"

NO_FIGURE = {
    **dict.fromkeys(("s1-003", "s1-006", "s1-009"), "length of the answers, in the workload's name"),
    "s1-012": "the profile's memory.weights_gib",
    **dict.fromkeys(("s1-015", "s1-022", "s2-005", "s2-019"), DERIVED),
    **dict.fromkeys(("s1-019", "s1-023", "s1-024"), SETTING),
    "s1-028": "of the link's port, in the note of the figures beside it",
    **dict.fromkeys(("s1-030", "s1-031"), "in the workload and note of the copy's rate"),
    "s1-033": "36.4, rounded",
    **dict.fromkeys(("s3-003", "s3-005", "s3-007", "s3-009", "s3-016", "s3-017", "s3-018", "s3-019"), DERIVED),
    **dict.fromkeys(("s3-020", "s3-021", "s3-022", "s3-029"), DERIVED),
    **dict.fromkeys(("s3-011", "s3-013", "s3-015"), "in the note of the figure beside it"),
    "s3-031": "a threshold of taste",
    "s4-065": "the box's memory bandwidth",
    **dict.fromkeys(("s4-226", "s4-227"), DERIVED),
}
"""Rows with a value that are no system's own figure, each with the reason."""


DOCUMENTS = {
    "001": "Conselara Labs, DGX Spark Benchmark Results, conselara.dev/notes/dgx-spark-benchmarks",
    "002": "my-other-github-account/spark-bench-reproducers, README.md",
    "003": "ICE-ICE-BEAR-BLOG, 2026-05-07, ice-ice-bear.github.io/posts/2026-05-07-dgx-spark-qwen35-inference-tuning",
    "004": "flash7777/vllm-marlin-sm12x@d53a4e1, RESULTS_NVFP4.md",
}
"""Names of the four documents in profiles."""


class Row(NamedTuple):
    """One figure as it was published; `value` is "" where the document leaves the place empty."""

    id: str
    document: str
    system: str
    workload: str
    metric: str
    value: str

    def numbers(self) -> tuple[float, ...]:
        """The value; two of them for a range."""
        return tuple(float(part) for part in self.value.split("..") if part)


with FIGURES.open() as _file:
    ROWS = [Row(**fields) for fields in csv.DictReader(_file)]


def attached(row: Row) -> list[Published]:
    """The profile's figures that this row is: same document and value, same workload where the row names one."""
    return [
        figure
        for figure in PROFILES[PROFILE_OF[row.system]].published
        if figure.source == DOCUMENTS[row.document]
        and row.workload in ("", figure.workload)
        and _numbers(figure, row.metric) == row.numbers()
    ]


def _of_documents(profile: Profile) -> list[Published]:
    """Figures of the four documents; those of public repositories name repository, commit and file themselves."""
    return [figure for figure in profile.published if figure.source in DOCUMENTS.values()]


def _numbers(figure: Published, metric: str) -> tuple[float, ...]:
    return tuple(number for number in (getattr(figure, metric), figure.upto) if number is not None)


def given(row: Row) -> bool:
    """Was a figure published there that belongs to one system?"""
    return row.value != "" and row.id not in NO_FIGURE


@pytest.mark.parametrize("row", [row for row in ROWS if given(row)], ids=lambda row: row.id)
def test_every_published_figure_is_a_profiles(row: Row) -> None:
    assert len(attached(row)) == 1


def test_no_profile_has_a_figure_that_was_not_published() -> None:
    """Each is at least one row of the documents, every number of it."""
    claimed = Counter(
        (DOCUMENTS[row.document], PROFILE_OF[row.system], row.metric, row.numbers()) for row in ROWS if given(row)
    )
    for profile in PROFILES.values():
        for figure in _of_documents(profile):
            metrics = [metric for metric in METRICS if getattr(figure, metric) is not None]
            assert len(metrics) == 1, f"{profile.name}: one row, one figure"
            key = (figure.source, profile.name, metrics[0], _numbers(figure, metrics[0]))
            assert claimed[key], f"{profile.name}: {figure}"


def test_where_nothing_was_published_the_profile_is_there_without_a_figure() -> None:
    """120 empty places of one matrix and their like: the system stays visible, nothing is invented."""
    for row in (row for row in ROWS if row.value == ""):
        profile = PROFILES[PROFILE_OF[row.system]]
        same = [figure for figure in profile.published if row.workload and figure.workload == row.workload]
        assert all(getattr(figure, row.metric, None) is None for figure in same), row.id


def test_rows_that_are_no_systems_figure_are_listed_with_a_reason() -> None:
    """The table above holds no row that could be attached, and no row that does not exist."""
    known = {row.id: row for row in ROWS}
    assert set(NO_FIGURE) <= set(known)
    for name in NO_FIGURE:
        row = known[name]
        assert row.metric not in METRICS or row.system not in PROFILE_OF or not attached(row), name


def test_weights_per_node_are_the_memory_need() -> None:
    row = next(row for row in ROWS if row.id == "s1-012")
    assert PROFILES["qwen3-235b"].memory.weights_gib == float(row.value)


def test_every_row_of_the_documents_is_there() -> None:
    assert Counter(row.document for row in ROWS) == {"001": 38, "002": 21, "003": 31, "004": 237}
    assert sum(row.value == "" for row in ROWS) == 167


def test_every_system_has_a_profile() -> None:
    assert set(PROFILE_OF.values()) <= set(PROFILES)


def test_every_figure_is_one_number() -> None:
    for profile in PROFILES.values():
        for figure in profile.published:
            assert len([metric for metric in METRICS if getattr(figure, metric) is not None]) == 1, profile.name
