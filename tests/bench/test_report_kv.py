"""KV cache and users of a 256K context by build, in the layout of the published table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.bench.measure.measured_engine import MeasuredEngine
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey
from sparkdash.domain.profile import EngineKind

CELL = CellKey(suite="seeds", context=0, output=400)
ARMS = [Arm(name="v2", profile="qwen"), Arm(name="v2-tq", profile="qwen/tq")]


def table(rehearse: Callable[..., Results], **told: dict[str, Any]) -> str:
    """The table of a run whose engines told this."""
    provenance = {name.replace("_", "-"): facts for name, facts in told.items()}
    rates = {arm.name: {CELL: 50.0} for arm in ARMS}
    page = render_markdown(report_page(assemble_report(rehearse(arms=ARMS, rates=rates, provenance=provenance))))
    return page.split("## 256K context")[1].split("\n## ")[0] if "## 256K context" in page else ""


def test_the_published_rows_come_out(rehearse: Callable[..., Results]) -> None:
    """355K tokens for one user and 1.4M for five, as published for these builds."""
    told = table(
        rehearse,
        v2={"kv_tokens": 355_000, "context_limit": 262_144},
        v2_tq={"kv_tokens": 1_400_000, "context_limit": 262_144},
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines() if "|" in line]
    assert rows[0] == ["Build", "KV cache", "256K concurrent users"]
    assert rows[2:] == [["v2", "355K tokens", "1"], ["v2-tq", "1.4M tokens", "5"]]
    assert "Computed, not measured." in told


@pytest.mark.parametrize(("limit", "users"), [(32_768, "-¹"), (None, "1")])
def test_an_engine_that_serves_no_such_context_has_no_users_of_it(
    rehearse: Callable[..., Results], limit: int | None, users: str
) -> None:
    """However large its cache is. An unknown limit is none."""
    told = table(rehearse, v2={"kv_tokens": 355_000, "context_limit": limit})
    assert f"| {users} " in told
    assert ("serves requests of up to 32,768 tokens" in told) is (limit is not None)


def test_without_the_engines_word_there_is_no_table(rehearse: Callable[..., Results]) -> None:
    assert table(rehearse) == ""


class ModelList:
    """Client of an engine that answers each path with these bytes."""

    def __init__(self, said: bytes) -> None:
        self.said = said

    async def get(self, _path: str, **_how: object) -> bytes:
        return self.said


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (b'{"data": [{"id": "other", "max_model_len": 4096}, {"id": "qwen", "max_model_len": 262144}]}', 262_144),
        (b'{"data": [{"id": "root/of/qwen", "max_model_len": 8192}]}', 8192),
        (b'{"data": [{"id": "qwen"}]}', None),
        (b'{"data": 3}', None),
        (b"not json", None),
    ],
)
async def test_the_longest_request_is_what_the_engine_says(said: bytes, limit: int | None) -> None:
    """Of the measured model, not of an adapter beside it; what is not told is unknown."""
    client: Any = ModelList(said)
    engine = MeasuredEngine(client=client, kind=EngineKind.VLLM, model="qwen", engine_url="http://engine")
    assert await engine.context_limit() == limit
