"""The dashboard for Grafana and the alerts in docs/monitoring: they ask for nothing that the page does not have."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from scraped import scraped_state

from sparkdash.prometheus.page import collect_families

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
GRAFANA = json.loads((FOLDER / "grafana.json").read_text())
PANELS = [panel for panel in GRAFANA["panels"] if panel["type"] != "row"]
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
SCRAPED = {"job", "instance"}
"""Labels that Prometheus itself adds."""


@cache
def exported() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in collect_families(scraped_state()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_expression(expression: str) -> None:
    """Every name is exported, and every label that is matched or grouped by belongs to one of the names."""
    names = set(re.findall(r"\bsparkdash_\w+", expression))
    assert names <= set(exported()), names - set(exported())
    labels = set().union(SCRAPED, *(exported()[name] for name in names))
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {word.strip() for word in group.split(",")} <= labels, group
    for name, matchers in re.findall(r"\b(sparkdash_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*=~?", matchers)) <= exported()[name] | SCRAPED, name


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_is_complete_and_asks_for_what_is_exported(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        check_expression(target["expr"])
        assert len(re.findall(r"sparkdash_\w+\{", target["expr"])) == target["expr"].count(
            'job=~"$job",instance=~"$instance"'
        )
        for span in re.findall(r"rate\([^[]*\[([^]]*)\]", target["expr"]):
            assert span == "$__rate_interval"


def test_panels_have_titles_and_places_of_their_own() -> None:
    places = [
        (x, y)
        for place in (panel["gridPos"] for panel in GRAFANA["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in GRAFANA["panels"]}) == len(GRAFANA["panels"])


def test_variables_and_marks_ask_for_what_is_exported() -> None:
    variables = {one["name"]: one for one in GRAFANA["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for name in ("job", "instance", "profile"):
        found = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variables[name]["query"]["query"])
        assert found is not None
        assert found[2] in exported()[found[1]] | SCRAPED
    for mark in GRAFANA["annotations"]["list"]:
        check_expression(mark["expr"])


def test_every_figure_of_the_page_is_on_a_panel() -> None:
    """A new family that nobody can see would not be missed when it breaks."""
    shown = set(re.findall(r"\bsparkdash_\w+", json.dumps(GRAFANA)))
    unseen = {
        "sparkdash_engine_info",
        "sparkdash_memory_total_bytes",
        "sparkdash_reasoning_tokens",
        "sparkdash_draft_tokens",
    }
    missing = [
        family.name
        for family in collect_families(scraped_state())
        if not any(name.startswith(family.name) for name in shown) and family.name not in unseen
    ]
    assert missing == ["sparkdash_prompt_tokens"]  # the sum of two that are shown


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_is_exported_and_says_what_to_do(rule: dict[str, Any]) -> None:
    check_expression(rule["expr"])
    assert "sparkdash" in rule["annotations"]["description"] or "Prometheus" in rule["annotations"]["description"]
    for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
        assert label in set().union(SCRAPED, *exported().values())


def test_the_page_of_the_docs_names_every_metric_and_no_other() -> None:
    page = (FOLDER.parent / "monitoring.md").read_text()
    table = page.partition("| metric | type |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {f"sparkdash_{name}" for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    told = {f"{one.name}_total" if one.type == "counter" else one.name for one in collect_families(scraped_state())}
    assert named == told
