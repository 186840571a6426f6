"""The gateway's page in a real Chromium, against a demo of its own: `make browser`, by hand.

Needs Debian's `chromium` and the Python package `playwright`, which CI does not install: together they cost it a minute.
At 390, 820 and 1920 px, dark and light: every view is drawn, nothing is wider than the screen, no request goes to
another host, little comes before the first paint. Then by keys and clicks: switch, cancel a load, chat, compare two
models, end an answer, a key that is asked for and revoked, and rest while hidden. Pictures go into the folder that is
named, or into a temporary one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

TARGET, SECOND = "qwen2.5-coder-7b", "gemma-3-4b"
VIEWS = ("now", "try", "requests", "profiles", "history", "logs", "box")
SIZES = ((390, 844), (820, 1180), (1920, 1080))
FIRST_PAINT = 100_000
WAIT_MS = 60_000
ENTRIES = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


@contextmanager
def program(*words: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a daemon; give its root URL."""
    argv = [sys.executable, "-m", "sparkdash", *words]
    merged = {**os.environ, **(env or {})}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=merged) as child:
        try:
            assert child.stdout is not None
            found = next(match for line in child.stdout if (match := re.search(r"http://\S+?(?=/v1)", line)))
            yield found[0]
        finally:
            child.send_signal(signal.SIGTERM)


def opened(browser: Browser, url: str, size: tuple[int, int] = (1440, 900), scheme: str = "dark") -> Page:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: sys.exit(f"the page's script failed: {error}"))
    page.goto(url)
    return page


def live(page: Page) -> None:
    expect(page.locator("#link.live")).to_be_visible(timeout=WAIT_MS)


def look(browser: Browser, url: str, folder: Path) -> None:
    """Draw every view in every size and both schemes; check widths, hosts and what comes before the first paint."""
    asked: list[Request] = []
    for scheme in ("dark", "light"):
        for size in SIZES:
            page = opened(browser, url, size, scheme)
            page.on("request", lambda request: asked.append(request))
            live(page)
            page.wait_for_selector("#chart canvas")
            entries = page.evaluate(f"{ENTRIES}.map((e) => [e.name, e.transferSize, e.startTime])")
            painted = page.evaluate(PAINTED)
            before = sum(taken for _, taken, start in entries if start <= painted)
            assert before < FIRST_PAINT, entries
            for view in VIEWS:
                page.goto(f"{url}/ui#/{view}")
                page.wait_for_selector(f".view-{view} h2")
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide == size[0], (view, size, wide)
                page.screenshot(path=folder / f"{view}-{size[0]}-{scheme}.png")
            print(f"{scheme}, {size[0]} px: {before} bytes before the first paint")
            page.context.close()
    hosts = {urlsplit(request.url).netloc for request in asked}
    assert hosts == {urlsplit(url).netloc}, hosts


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


def check_switch(page: Page) -> None:
    begin_switch(page, TARGET)
    row = page.locator("#engines article", has_text=TARGET)
    expect(row).to_contain_text("serves", timeout=WAIT_MS)


def check_cancel(page: Page) -> None:
    """Cancel a load; its engine never serves."""
    begin_switch(page, SECOND)
    page.click("[data-do=cancel-loads]")
    page.click("#dialog-acts .danger")
    page.wait_for_selector("progress", state="detached")
    expect(page.locator("#engines article .good", has_text="serves")).to_have_count(1)


def check_chat(page: Page, url: str, folder: Path) -> None:
    """Ask one model, end an answer, and ask two, of which the second is loaded for it."""
    page.goto(f"{url}/ui#/try/{TARGET}")
    ask(page, "What is unified memory?")
    expect(page.locator("#turns-0 .rates").first).to_contain_text("tok/s", timeout=WAIT_MS)
    expect(page.locator("#turns-0 .rates").first).to_contain_text("TTFT")
    ask(page, "Tell me a very long story.")
    page.locator("#turns-0 article").nth(1).locator(".answer", has_text="simulated").wait_for()
    page.click("#halt")
    expect(page.locator("#turns-0 .rates").nth(1)).to_contain_text("stopped")
    page.check("#two")
    page.select_option("#model-1", SECOND)
    expect(page.locator("#together")).to_contain_text(f"{SECOND} is asked after {TARGET}")
    ask(page, "Compare yourself.")
    expect(page.locator("#turns-1 .rates")).to_contain_text("tok/s", timeout=WAIT_MS)
    expect(page.locator("#turns-1 .rates")).to_contain_text("with its load")
    page.screenshot(path=folder / "compared.png")


def ask(page: Page, question: str) -> None:
    page.wait_for_selector("#send:visible")
    page.fill("#question", question)
    page.press("#question", "Enter")


def check_key(browser: Browser) -> None:
    """A gateway with keys: the page asks for one, says what is wrong with another, and asks again when it is revoked."""
    with tempfile.TemporaryDirectory() as home:
        env = {f"SPARKDASH_{name}_DIR": f"{home}/{name}" for name in ("CONFIG", "STATE", "CACHE")}
        secrets = {name: json.loads(keys("add", name, "--scope", "control", "--json", env=env))["key"] for name in "ab"}
        with program("serve", "--port", "0", "--runtime", "process", env=env) as url:
            page = opened(browser, url)
            page.wait_for_selector("#key:focus")
            for secret in ("sk-sparkdash-wrong", secrets["a"]):
                page.fill("#key", secret)
                page.press("#key", "Enter")
                if secret != secrets["a"]:
                    expect(page.locator("#key-why")).to_contain_text("key", timeout=WAIT_MS)
                    page.wait_for_selector("#key:focus")
            live(page)
            expect(page.locator("#key-form")).to_be_hidden()
            keys("revoke", "a", env=env)
            page.wait_for_selector("#key:focus")
            expect(page.locator("#view")).to_be_hidden()
            assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def keys(*words: str, env: Mapping[str, str]) -> str:
    argv = [sys.executable, "-m", "sparkdash", "keys", *words]
    return subprocess.run(argv, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True).stdout


def check_rest(browser: Browser, url: str) -> None:
    """A page that nobody looks at leaves the feed, and returns to it when it is shown."""
    page = browser.new_context().new_page()
    page.clock.install()
    page.goto(url)
    page.wait_for_selector("#link.live")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/events"), timeout=WAIT_MS):
        show(page, hidden=True)
        page.clock.fast_forward(31_000)
    expect(page.locator("#link.lost")).to_be_attached(timeout=WAIT_MS)
    page.clock.run_for(30_000)
    assert page.locator("#link.live").count() == 0
    show(page, hidden=False)
    live(page)


def show(page: Page, *, hidden: bool) -> None:
    told = json.dumps(hidden)
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{ value: {told}, configurable: true }})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def main() -> None:
    """Run all checks; exit with a traceback at the first that fails."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="sparkdash-browser-"))
    folder.mkdir(parents=True, exist_ok=True)
    with program("demo", "--headless", "--speed", "3") as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        look(browser, url, folder)
        page = opened(browser, url)
        live(page)
        check_cancel(page)
        print("cancelled a load")
        check_switch(page)
        print(f"switched to {TARGET}")
        check_chat(page, url, folder)
        print("chatted, ended an answer, compared two")
        check_key(browser)
        print("asked for a key, and again when it was revoked")
        check_rest(browser, url)
        print("rested while hidden")
        browser.close()
    print(f"pictures: {folder}")


if __name__ == "__main__":
    main()
