"""The page for browsers: who gets it, that nothing outside can get in, and that it stays small."""

import inspect
import re
from hashlib import sha256
from importlib.resources import files
from typing import Any

import pytest
from scripted import answering

from sparkdash.api.control import ControlApi
from sparkdash.api.rows import Row
from sparkdash.domain import event
from sparkdash.gateway.apis import pages

FOLDER = files("sparkdash.gateway") / "page"
UPLOT = {
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of uPlot 1.6.32's `dist/uPlot.iife.min.js`, `dist/uPlot.min.css` and `LICENSE`."""
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def text(name: str) -> str:
    return (FOLDER / name).read_text()


def test_the_charting_library_is_the_published_file_and_has_its_licence() -> None:
    assert {name: sha256((FOLDER / name).read_bytes()).hexdigest() for name in UPLOT} == UPLOT
    assert "(v1.6.32)" in text("uplot.js")[:100]


@pytest.mark.parametrize(
    ("accept", "told"),
    [("*/*", "Ollama is running"), ("", "Ollama is running"), ("application/json", '{"status":"ok"}')],
)
async def test_a_program_at_the_root_is_told_what_ollamas_clients_look_for(house: Any, accept: str, told: str) -> None:
    """Ollama's clients test the base URL by these words; one that asks for JSON gets the gateway's health."""
    answer = await house.client.get("/", headers={"accept": accept})
    assert (answer.status_code, answer.text) == (200, told)
    assert answer.headers["vary"] == "Accept"


async def test_a_browser_at_the_root_gets_the_page(house: Any) -> None:
    root, page = [await house.client.get(path, headers={"accept": BROWSER}) for path in ("/", "/ui")]
    assert root.status_code == 200
    assert root.headers["content-type"].startswith("text/html")
    assert root.content == page.content
    posted = await house.client.post("/ui", json={})
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", sorted(pages.FILES))
async def test_every_file_lets_nothing_else_in(house: Any, path: str) -> None:
    """Scripts and styles of this origin alone, no frame, and a browser asks again only for what changed."""
    answer = await house.client.get(path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) <= {"'self'", "'none'"}
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = await house.client.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


SCRIPTS = sorted(name for name in pages.FILES.values() if name.endswith(".js") and name not in UPLOT)


def imported(name: str, how: str = r'^import .*"\./([\w.]+)"|^} from "\./([\w.]+)"') -> set[str]:
    return {one or other for one, other in re.findall(how, text(name), re.MULTILINE)}


def test_the_page_names_only_its_own_files_and_has_no_inline_script_or_style() -> None:
    page = text("index.html")
    named = set(re.findall(r'(?:src|href)="(/[^"]+)"', page))
    assert named
    assert named <= set(pages.FILES)
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page)
    for name in (*SCRIPTS, "page.css"):
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text(name))


def test_every_script_is_used() -> None:
    there = {*SCRIPTS, "uplot.js"}
    assert there == {found for name in SCRIPTS for found in re.findall(r'"(?:\./|/ui/)(\w+\.js)"', text(name))} | {
        "main.js"
    }


def test_the_page_is_small() -> None:
    """Files before the first view are under 80 kB, and all scripts under 2,500 lines."""
    first, found = {"main.js"}, {"main.js"}
    while found:
        found = {each for name in found for each in imported(name)} - first
        first |= found
    assert "tryout.js" not in first
    assert sum(len((FOLDER / name).read_bytes()) for name in (*first, "index.html", "page.css", "uplot.css")) < 80_000
    assert sum(len(text(name).splitlines()) for name in SCRIPTS) < 2500


def test_the_page_s_names_for_facts_and_orders_exist() -> None:
    """A fact that was renamed would silently leave the page as it was, and a button without its order does nothing."""
    kinds = set(re.findall(r'kind: Literal\["(\w+)"\]', inspect.getsource(event)))
    told = set(re.findall(r"^  (\w+)\(state, ", text("state.js"), re.MULTILINE))
    assert told
    assert told <= kinds
    scripts = "".join(text(name) for name in SCRIPTS)
    offered = set(re.findall(r'button\([^"]*"[^"]+", "([\w-]+)"|"data-do": "([\w-]+)"', scripts))
    assert {one or other for one, other in offered} <= set(re.findall(r'\bon\("([\w-]+)"', scripts))


def test_the_page_asks_for_routes_that_exist() -> None:
    rows = [row for row in vars(ControlApi).values() if isinstance(row, Row)]
    shapes = {re.sub(r"\{[^}]+\}", "*", row.path) for row in rows}
    asked = {found for name in SCRIPTS for found in re.findall(r'["`](/api/[^"`?]+)', text(name))}
    assert {re.sub(r"\$\{[^}]+\}", "*", path) for path in asked} <= shapes


@pytest.mark.parametrize("status", [200, 404])
async def test_a_page_of_an_engine_gets_neither_the_gateway_s_origin_nor_its_keys(house: Any, status: int) -> None:
    """The page would share its address with the gateway's page and with the control API."""

    house.engine.script = answering(b"<script>fetch('/api/state')</script>", status=status, content_type="text/html")
    answer = await house.client.get("/upstream/alpha/")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox ")
    assert "allow-same-origin" not in policy
