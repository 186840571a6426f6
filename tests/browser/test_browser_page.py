"""The gateway's page in a real Chromium, against a demo of its own. SPARKDASH_PICTURES names a folder for pictures."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from daemons import Api, own_folder_variables, served

from sparkdash.bench.run import Arm, CellKey
from tests.bench.conftest import Rehearsal

if TYPE_CHECKING:  # installed for `make full` alone
    from playwright.sync_api import Browser, Page, Request

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

TARGET, SECOND = "qwen2.5-coder-7b", "gemma-3-4b"
VIEWS = ("now", "try", "requests", "profiles", "history", "logs", "box")
SIZES = ((390, 844), (820, 1180), (1920, 1080))
RUNS = {
    "20261121-200000-seeds": "eagle decodes 4.0 % faster than plain over 2 cells.",
    "20261121-210000-load": "eagle starts in 75.0 % less time than plain over 1 cell.",
}
"""Words of the page about each run."""
FIRST_PAINT_BYTES = 100_000
WAIT_MS = 60_000
ENTRIES = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"

OpenPage = Callable[..., "Page"]


def program(*words: str, env: Mapping[str, str]) -> AbstractContextManager[tuple[Any, Api]]:
    """Run a daemon with these variables; see `served`."""
    return served(*words, stderr=subprocess.STDOUT, env={**os.environ, **env})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("a real browser needs chromium (sh tests/browser/setup.sh)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A demo that has two runs of the bench: eagle decodes 4 % faster than plain, and starts sooner."""
    runs, rehearse = tmp_path_factory.mktemp("runs"), Rehearsal
    rates = {CellKey(suite="seeds", context=0, output=output): 60.0 for output in (32, 150)}
    faster = {key: rate * 1.04 for key, rate in rates.items()}
    arms = [Arm(name="plain", profile="coder"), Arm(name="eagle", profile="coder/eagle")]
    decode, load = RUNS
    rehearse(arms=arms, rates={"plain": rates, "eagle": faster}, wobble=0.001, changes={"id": decode}).write(runs)
    starts = {"plain": {"startup_s": 300.0}, "eagle": {"startup_s": 75.0}}
    same = {name: {CellKey(suite="load", context=0, output=16): 50.0} for name in starts}
    rehearse(arms=arms, rates=same, provenance=starts, changes={"id": load, "suite": "load"}).write(runs)
    with program("demo", "--headless", "--speed", "3", env={"SPARKDASH_BENCH_DIR": str(runs)}) as (_, api):
        yield api.url


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("SPARKDASH_PICTURES") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages whose scripts may not fail."""
    opened, errors = list[Any](), list[str]()

    def open_page(url: str, size: tuple[int, int] = (1440, 900), scheme: str = "dark") -> Page:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        opened.append(context)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        return page

    yield open_page
    for context in opened:
        context.close()
    assert not errors


@pytest.fixture
def page(open_page: OpenPage, url: str) -> Page:
    """The demo's page, connected."""
    page = open_page(url)
    wait_until_live(page)
    return page


def expect(shown: Any) -> Any:
    from playwright.sync_api import expect

    expect.set_options(timeout=WAIT_MS)
    return expect(shown)


def wait_until_live(page: Page) -> None:
    expect(page.locator("#link.live")).to_be_visible()


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}px")
def test_every_view_fits_and_asks_no_other_host(
    open_page: OpenPage, url: str, pictures: Path, size: tuple[int, int], scheme: str
) -> None:
    """Little comes before the first paint, too."""
    asked: list[Request] = []
    page = open_page(url, size, scheme)
    page.on("request", lambda request: asked.append(request))
    wait_until_live(page)
    page.wait_for_selector("#chart canvas")
    entries = page.evaluate(f"{ENTRIES}.map((e) => [e.name, e.transferSize, e.startTime])")
    painted = page.evaluate(PAINTED)
    assert sum(taken for _, taken, start in entries if start <= painted) < FIRST_PAINT_BYTES, entries
    for view in VIEWS:
        page.goto(f"{url}/ui#/{view}")
        page.wait_for_selector(f".view-{view} h2")
        page.screenshot(path=pictures / f"{view}-{size[0]}-{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth") == size[0], view
    assert {urlsplit(request.url).netloc for request in asked} == {urlsplit(url).netloc}


def test_a_request_opens_at_any_cell_of_its_row(page: Page, url: str) -> None:
    page.goto(f"{url}/ui#/requests")
    page.locator(".view-requests tbody tr").last.locator("td").last.click()
    expect(page.locator("#dialog")).to_contain_text("Prompt")


def begin_switch(page: Page, name: str) -> None:
    """Choose a model by the keyboard alone, up to the button of its plan."""
    page.click("#switch")
    page.fill("#find", name)
    expect(page.locator(".models tbody tr")).to_have_count(1)
    page.locator("[data-do=use]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#dialog-acts .main")).to_be_visible()
    page.locator("#dialog-acts .main").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".view-now")


def test_a_model_of_more_boxes_than_there_are_is_offered_only_on_request(page: Page, url: str) -> None:
    page.goto(f"{url}/ui#/profiles")
    wide = page.locator(".models tr[data-key='glm-5.3-flash']")
    page.wait_for_selector(f".models tr[data-key='{TARGET}']")
    expect(wide).to_have_count(0)
    page.check("#all")
    expect(wide).to_have_count(1)
    page.goto(f"{url}/ui#/try")
    expect(page.locator(f"#model-0 option[value='{TARGET}']")).to_have_count(1)
    expect(page.locator("#model-0 option[value='glm-5.3-flash']")).to_have_count(0)


def test_a_load_that_is_cancelled_never_serves(page: Page) -> None:
    begin_switch(page, SECOND)
    page.click("[data-do=cancel-loads]")
    page.click("#dialog-acts .danger")
    page.wait_for_selector("progress", state="detached")
    expect(page.locator("#engines article .good", has_text="serves")).to_have_count(1)


def test_the_keyboard_alone_switches(page: Page) -> None:
    begin_switch(page, TARGET)
    expect(page.locator("#engines article", has_text=TARGET)).to_contain_text("serves")


def ask(page: Page, question: str) -> None:
    page.wait_for_selector("#send:visible")
    page.fill("#question", question)
    page.press("#question", "Enter")


def test_a_chat_shows_its_rates_can_be_ended_and_compares_two_models(page: Page, url: str, pictures: Path) -> None:
    page.goto(f"{url}/ui#/try/{TARGET}")
    ask(page, "What is unified memory?")
    expect(page.locator("#turns-0 .rates").first).to_contain_text("tok/s")
    expect(page.locator("#turns-0 .rates").first).to_contain_text("TTFT")
    ask(page, "Tell me a very long story.")
    page.locator("#turns-0 article").nth(1).locator(".answer", has_text="simulated").wait_for()
    page.click("#halt")
    expect(page.locator("#turns-0 .rates").nth(1)).to_contain_text("stopped")
    page.check("#two")
    page.select_option("#model-1", SECOND)
    expect(page.locator("#together")).to_contain_text(f"{SECOND} is asked after {TARGET}")
    ask(page, "Compare yourself.")
    expect(page.locator("#turns-1 .rates")).to_contain_text("tok/s")
    expect(page.locator("#turns-1 .rates")).to_contain_text("with its load")
    expect(page.locator("#about-0")).not_to_contain_text("It runs already")  # as its plan of before the load says
    page.screenshot(path=pictures / "compared.png")


SIMULATED = "profile: {name}\nengine: sim\nsim: {{load_s: 0.5, memory_gib: 0.1, time_scale: 4{more}}}\n"
PLAIN, STALLS = "constructor", "stalls"
"""Profiles of `own`; the first is called as a property of every JavaScript object."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A daemon that needs no key, with simulated engines as processes."""
    root = tmp_path_factory.mktemp("own")
    env, profiles = own_folder_variables(root), root / "config" / "profiles"
    profiles.mkdir()
    for name, more in ((PLAIN, ""), (STALLS, ", fault: never-ready")):
        (profiles / f"{name}.yaml").write_text(SIMULATED.format(name=name, more=more))
    (profiles.parent / "config.toml").write_text("reserve_gib = 0.5\n")
    with program("serve", "--port", "0", "--runtime", "process", env=env) as (_, api):
        yield api


def use(page: Page, name: str) -> None:
    page.click(f"[data-do=use][data-of={name}]")
    page.click("#dialog-acts .main")


def test_a_profile_may_be_called_as_a_property_of_every_object(open_page: OpenPage, own: Api) -> None:
    page = open_page(f"{own.url}/ui#/profiles")
    use(page, PLAIN)
    expect(page.locator("#engines article", has_text=PLAIN)).to_contain_text("serves")


def test_every_request_is_listed_though_more_end_than_the_state_keeps(open_page: OpenPage, own: Api) -> None:
    """A request that did not stream has no first token among its details: its time is unknown."""
    page = open_page(f"{own.url}/ui#/requests")
    wait_until_live(page)
    body = {"model": PLAIN, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    for _ in range(70):
        own.post("/v1/chat/completions", body)
    expect(page.locator("#rows tbody tr")).to_have_count(70)
    page.locator("#rows tbody tr").first.click()
    expect(page.locator("#dialog .legend")).to_contain_text("answered")
    expect(page.locator("#dialog .legend")).not_to_contain_text("first token")


def test_an_order_that_fails_says_why_and_stays(open_page: OpenPage, own: Api) -> None:
    page = open_page(f"{own.url}/ui#/profiles")
    page.route("**/api/use", lambda route: route.fulfill(status=409, json={"error": {"message": "It does not fit."}}))
    use(page, STALLS)
    expect(page.locator("#dialog-error")).to_have_text("It does not fit.")
    expect(page.locator("#dialog")).to_be_visible()


def test_a_page_whose_file_does_not_come_is_asked_for_again(open_page: OpenPage, own: Api) -> None:
    page = open_page(own.url)
    page.wait_for_selector("#engines h2")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/ui/logs.js")):
        page.route("**/ui/logs.js", lambda route: route.abort())
        page.click("nav [href='#/logs']")
    page.unroute("**/ui/logs.js")
    expect(page.locator(".view-logs h2")).to_be_visible()


def test_a_load_that_stalls_is_kept_with_one_click_and_tried_again_with_four(
    open_page: OpenPage, own: Api, pictures: Path
) -> None:
    page = open_page(f"{own.url}/ui#/profiles")
    wait_until_live(page)
    use(page, STALLS)
    asking = Thread(target=own.call, args=("POST", "/v1/chat/completions", {"model": STALLS, "messages": []}))
    asking.start()
    expect(page.locator("#traffic tbody tr").first).to_contain_text("waits: stalled")
    page.click("[data-do=keep-load]")
    expect(page.locator("#toasts")).to_contain_text("stalls may go on standing still.")
    page.screenshot(path=pictures / "stalled.png")
    page.click("#traffic tbody tr >> nth=0")
    page.click("#dialog-acts .danger")
    page.locator("#traffic tbody tr", has_text="request cancelled").click()
    expect(page.locator("#dialog .legend")).to_contain_text(re.compile(r"waited 0\.\d\d s.*for its load [1-9]"))
    page.click("[data-do=close-dialog]")
    page.click("[data-do=cancel-loads]")
    page.click("#dialog-acts .danger")
    asking.join()
    page.click("#engines [data-do=use]")
    page.click("#dialog-acts .main")
    expect(page.locator("#engines progress")).to_be_visible()


def test_a_run_of_the_bench_says_which_arm_is_faster(page: Page, url: str, pictures: Path) -> None:
    """More is better for decode rates, fewer for a start's seconds."""
    for run, told in RUNS.items():
        page.goto(f"{url}/ui#/history")
        page.click(f"#measured [data-of='{run}']")
        expect(page.locator("#dialog-body .good")).to_contain_text(told)
        page.screenshot(path=pictures / f"{run}.png")
        page.click("[data-do=close-dialog]")


def keys(*words: str, env: Mapping[str, str]) -> str:
    argv = [sys.executable, "-m", "sparkdash", "keys", *words]
    return subprocess.run(argv, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_a_key_is_asked_for_and_asked_for_again_when_it_is_revoked(open_page: OpenPage, tmp_path: Path) -> None:
    env = own_folder_variables(tmp_path)
    secrets = {name: json.loads(keys("add", name, "--scope", "control", "--json", env=env))["key"] for name in "ab"}
    with program("serve", "--port", "0", "--runtime", "process", env=env) as (_, api):
        page = open_page(api.url)
        page.wait_for_selector("#key:focus")
        page.fill("#key", "sk-sparkdash-wrong")
        page.press("#key", "Enter")
        expect(page.locator("#key-why")).to_contain_text("key")
        page.wait_for_selector("#key:focus")
        page.fill("#key", secrets["a"])
        page.press("#key", "Enter")
        wait_until_live(page)
        expect(page.locator("#key-form")).to_be_hidden()
        keys("revoke", "a", env=env)
        page.wait_for_selector("#key:focus")
        expect(page.locator("#view")).to_be_hidden()
        assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_page_that_nobody_looks_at_leaves_the_feed_and_returns_to_it(browser: Browser, url: str) -> None:
    page = browser.new_context().new_page()
    page.clock.install()
    page.goto(url)
    page.wait_for_selector("#link.live")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/events"), timeout=WAIT_MS):
        show(page, hidden=True)
        page.clock.fast_forward(31_000)
    expect(page.locator("#link.lost")).to_be_attached()
    page.clock.run_for(30_000)
    assert page.locator("#link.live").count() == 0
    show(page, hidden=False)
    wait_until_live(page)


def test_a_log_goes_on_when_the_link_is_back(open_page: OpenPage, url: str) -> None:
    """A feed that says nothing for 45 s counts as lost."""
    page = open_page("about:blank")
    page.clock.install()
    page.route("**/api/logs/**", lambda route: route.abort())
    page.goto(f"{url}/ui#/logs")
    expect(page.locator("#log")).to_have_text("The gateway cannot be reached.\n")
    page.unroute("**/api/logs/**")
    page.clock.fast_forward(46_000)
    expect(page.locator("#log")).to_contain_text("INFO")


def show(page: Page, *, hidden: bool) -> None:
    told = json.dumps(hidden)
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{ value: {told}, configurable: true }})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
