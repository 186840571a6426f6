"""The published figures of the shipped profiles, against the tables they were read in.

tests/data/published/figures.csv holds the 327 figures of four documents: one row each, blanks included, in our words
for system, workload and metric, with the profile that the system is here; percentages as parts of one, a range as
`low..high`. `no_figure` says why a row with a value is no system's own figure.
"""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkdash import catalog
from sparkdash.domain.node import Link, NodeLaunch
from sparkdash.domain.profile import Profile, Published
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.registry import adapter_of
from sparkdash.paths import shipped_profiles

FIGURES = Path(__file__).parents[1] / "data" / "published" / "figures.csv"
PROFILES = catalog.load_catalog([shipped_profiles()]).profiles

RATES = ("decode_tok_s", "prefill_tok_s", "e2e_tok_s", "aggregate_tok_s", "tok_s")
METRICS = (*RATES, "kv_tokens", "prefix_hit_rate", "math_score", "start_s", "link_gbit_s", "copy_mb_s")


class Row(NamedTuple):
    """One figure as it was published; `value` is "" where the document leaves the place empty."""

    id: str
    document: str
    system: str
    profile: str
    workload: str
    metric: str
    value: str
    no_figure: str

    def numbers(self) -> tuple[float, ...]:
        """The value; two of them for a range."""
        return tuple(float(part) for part in self.value.split("..") if part)


with FIGURES.open() as _file:
    ROWS = [Row(**fields) for fields in csv.DictReader(_file)]
GIVEN = [row for row in ROWS if row.value and not row.no_figure]
DOCUMENTS = {row.document for row in ROWS}


def attached(row: Row) -> list[Published]:
    """The profile's figures that this row is: same document and value, same workload where the row names one."""
    return [
        figure
        for figure in PROFILES[row.profile].published
        if figure.source == row.document
        and row.workload in ("", figure.workload)
        and _numbers(figure, row.metric) == row.numbers()
    ]


def _of_documents(profile: Profile) -> list[Published]:
    """Figures of the four documents; those of public repositories name repository, commit and file themselves."""
    return [figure for figure in profile.published if figure.source in DOCUMENTS]


def _numbers(figure: Published, metric: str) -> tuple[float, ...]:
    return tuple(number for number in (getattr(figure, metric), figure.upto) if number is not None)


@pytest.mark.parametrize("row", GIVEN, ids=lambda row: row.id)
def test_every_published_figure_is_a_profiles(row: Row) -> None:
    assert len(attached(row)) == 1


def test_no_profile_has_a_figure_that_was_not_published() -> None:
    """Each is at least one row of the documents, every number of it."""
    claimed = {(row.document, row.profile, row.metric, row.numbers()) for row in GIVEN}
    for profile in PROFILES.values():
        for figure in _of_documents(profile):
            metrics = [metric for metric in METRICS if getattr(figure, metric) is not None]
            assert len(metrics) == 1, f"{profile.name}: one row, one figure"
            key = (figure.source, profile.name, metrics[0], _numbers(figure, metrics[0]))
            assert key in claimed, f"{profile.name}: {figure}"


def test_where_nothing_was_published_the_profile_is_there_without_a_figure() -> None:
    """120 empty places of one matrix and their like: the system stays visible, nothing is invented."""
    for row in (row for row in ROWS if row.value == ""):
        profile = PROFILES[row.profile]
        same = [figure for figure in profile.published if row.workload and figure.workload == row.workload]
        assert all(getattr(figure, row.metric, None) is None for figure in same), row.id


def test_rows_that_are_no_systems_figure_could_not_be_attached() -> None:
    for row in (row for row in ROWS if row.no_figure):
        assert row.metric not in METRICS or not row.profile or not attached(row), row.id


def test_weights_per_node_are_the_memory_need() -> None:
    row = next(row for row in ROWS if row.id == "s1-012")
    assert PROFILES["qwen3-235b"].memory.weights_gib == float(row.value)


def test_every_row_of_the_documents_is_there() -> None:
    assert sorted(Counter(row.document for row in ROWS).values()) == [21, 31, 38, 237]
    assert sum(row.value == "" for row in ROWS) == 167


def test_every_figure_is_one_number() -> None:
    for profile in PROFILES.values():
        for figure in profile.published:
            assert len([metric for metric in METRICS if getattr(figure, metric) is not None]) == 1, profile.name


PUBLISHED = Path(__file__).parents[1] / "data" / "published"
LAUNCHES = sorted((PUBLISHED / "launches").iterdir())
with (PUBLISHED / "autumn.csv").open() as _autumn:
    AUTUMN = list(csv.DictReader(_autumn))

OURS = {
    "host", "port", "name", "served-model-name", "node-rank", "rank", "nnodes", "master", "master-addr", "master-port",
    "revision", "distributed-executor-backend", "enable-prompt-tokens-details", "disable-access-log-for-endpoints",
    "otlp-traces-endpoint",
}  # fmt: skip
"""Flags that sparkdash sets by itself."""

READ = {"load-format", "safetensors-load-strategy", "model-loader-extra-config"}
"""vLLM's default loader is slow on a GB10; instanttensor needs a patch for this draft."""
CHANGED = {
    "qwen3.8-flash-next": {"vision-image-tokens"},  # the build reads TENSORFOLD_IMAGE_TOKENS, which the kit sets too
    "qwen3.8-27b/tensorfold": {"drafter"},  # named, where the kit has it found
    "qwen3.8-flash-next/two-sparks": READ,
    "mimo-v2.6-flash": {"speculative-config"},  # the drafter's folder
    "mimo-v2.6-flash/sparkring-4": {"speculative-config"},
    "mimo-v2.6-flash/three-sparks": READ | {"kv-cache-dtype"},  # which needs a patch of vLLM
    "minimax-m3": READ,
    "qwen3.6-35b-a3b/beside": READ,
    "deepseek-v4-flash": READ,
    "deepseek-v4.1-flash": {"hf-overrides"},  # the tables' folder
}
"""Flags that differ from the source, each with its reason in the profile."""


@pytest.mark.parametrize("row", AUTUMN, ids=lambda row: f"{row['profile']}:{row['workload']}")
def test_a_figure_is_that_of_its_source(row: dict[str, str]) -> None:
    """The profile names repository, commit and file, and its value stands in the quoted line."""
    source = f"{row['repository']}@{row['commit']}, {row['file']}"
    found = [
        getattr(figure, row["metric"])
        for figure in PROFILES[row["profile"]].published
        if (figure.workload, figure.source) == (row["workload"], source) and getattr(figure, row["metric"]) is not None
    ]
    assert found == [float(row["value"])]
    assert float(row["value"]) in [float(hit) for hit in re.findall(r"\d+(?:\.\d+)?", row["quote"].replace(",", ""))]


@pytest.mark.parametrize("file", LAUNCHES, ids=lambda file: file.stem)
def test_a_command_line_has_the_flags_of_its_source(file: Path) -> None:
    """Each flag with its value, but for those that sparkdash sets, and those that are changed for a reason."""
    name = file.stem.replace(".txt", "")
    profile = next(one for one in PROFILES.values() if one.name.replace("/", ".") == name)
    _, _, *lines = file.read_text().splitlines()
    theirs = _flags([word for line in lines for word in line.split(" ")])
    ours = _flags(_argv(profile))
    differing = {flag for flag in theirs.keys() | ours.keys() if theirs.get(flag) != ours.get(flag)}
    assert differing - OURS == CHANGED.get(profile.name, set()) & differing
    assert CHANGED.get(profile.name, set()) & differing or profile.name not in CHANGED


def _argv(profile: Profile) -> tuple[str, ...]:
    nodes = tuple(
        NodeLaunch(
            name=f"spark{rank}",
            address=f"192.168.100.{10 + rank}",
            hf_home="/hf",
            cache_dir="/cache",
            link=Link(interface="enp1s0f1np1", hca="rocep1s0f1"),
        )
        for rank in range(profile.nodes)
    )
    launch = LaunchContext(
        port=18000, containerised=True, hf_home="/hf", cache_dir="/cache", master_port=29551,
        nodes=nodes if profile.nodes > 1 else (),
    )  # fmt: skip
    return adapter_of(profile).container(profile, launch).argv


def _flags(words: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return flags with their values: JSON by its content, numbers by their value, a bare flag as True."""
    found: dict[str, list[str]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag = word.removeprefix("--")
            found[flag] = []
        elif flag:
            found[flag].append(word)
    return {flag: [_value(word) for word in values] or True for flag, values in found.items()}


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word
