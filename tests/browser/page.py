"""The gateway's page in a real Chromium, against a demo of its own: `make browser`, by hand.

Needs Debian's `chromium` and the Python package `playwright`, which CI does not install: together they cost it a minute.
Checks at 390x844: no request to another host, under 100 kB at first paint, nothing wider than the screen; then switches
to another profile and waits for its engine, asks for a key where the gateway needs one, and rests while hidden. Pictures go into the folder
that is named, or into a temporary one.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

TARGET = "qwen2.5-coder-7b"
FIRST_PAINT = 100_000
WAIT_MS = 60_000
SIZES = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


@contextmanager
def demo() -> Iterator[str]:
    """Run a simulated box; give its root URL."""
    words = [sys.executable, "-m", "sparkdash", "demo", "--headless", "--speed", "20"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            found = re.search(r"http://\S+?(?=/v1)", next(line for line in child.stdout if "serves" in line))
            assert found is not None
            yield found[0]
        finally:
            child.send_signal(signal.SIGTERM)


def opened(browser: Browser, url: str, scheme: str, asked: list[Request]) -> Page:
    context = browser.new_context(
        viewport={"width": 390, "height": 844},
        color_scheme=scheme,
        device_scale_factor=2,
        has_touch=True,
        is_mobile=True,
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request))
    page.on("pageerror", lambda error: sys.exit(f"the page's script failed: {error}"))
    page.goto(url)
    return page


def check_size(page: Page) -> int:
    """Return the bytes that came before the first paint, in their headers too."""
    entries = page.evaluate(f"{SIZES}.map((e) => [e.name, e.transferSize, e.startTime])")
    painted = page.evaluate(PAINTED)
    before = sum(size for _, size, start in entries if start <= painted)
    assert before < FIRST_PAINT, entries
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    return before


def switch(page: Page) -> None:
    """Switch to TARGET by touch, and wait until its engine serves."""
    page.tap("#open-sheet")
    page.fill("#find", TARGET)
    page.tap("#profiles button")
    page.tap("#switch")
    row = page.locator("#engines .row", has_text=TARGET)
    expect(row).to_contain_text("serves", timeout=WAIT_MS)


def check_key(browser: Browser, url: str) -> None:
    """Where the gateway refuses without a key, the page asks for one, sends it, and shows the state."""
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    refusal = json.dumps({"error": {"message": "The key of this request is unknown or was revoked."}})

    def guard(route: object) -> None:
        if route.request.headers.get("authorization") == "Bearer sk-right":  # type: ignore[attr-defined]
            route.continue_()  # type: ignore[attr-defined]
        else:
            route.fulfill(status=401, content_type="application/json", body=refusal)  # type: ignore[attr-defined]

    page.route("**/api/**", guard)
    page.goto(url)
    for secret, shown in (("sk-wrong", "unknown or was revoked"), ("sk-right", "")):
        page.fill("#key", secret)
        page.press("#key", "Enter")
        if shown:
            expect(page.locator("#key-why")).to_contain_text(shown, timeout=WAIT_MS)
    expect(page.locator("#link.live")).to_be_visible(timeout=WAIT_MS)
    expect(page.locator("#key-form")).to_be_hidden()


def check_rest(browser: Browser, url: str) -> None:
    """A page that nobody looks at leaves the feed, and returns to it when it is shown."""
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
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
    expect(page.locator("#link.live")).to_be_visible(timeout=WAIT_MS)


def show(page: Page, *, hidden: bool) -> None:
    told = json.dumps(hidden)
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{ value: {told}, configurable: true }})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def main() -> None:
    """Run all checks; exit with a traceback at the first that fails."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="sparkdash-browser-"))
    folder.mkdir(parents=True, exist_ok=True)
    with demo() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        asked: list[Request] = []
        for scheme in ("dark", "light"):
            page = opened(browser, url, scheme, asked)
            page.wait_for_selector("#link.live")
            page.wait_for_selector("#chart canvas")
            page.screenshot(path=folder / f"{scheme}.png", full_page=True)
            print(f"{scheme}: {check_size(page)} bytes before the first paint")
        switch(page)
        page.screenshot(path=folder / "switched.png", full_page=True)
        print(f"switched to {TARGET}")
        check_key(browser, url)
        print("asked for a key")
        check_rest(browser, url)
        print("rested while hidden")
        hosts = {urlsplit(request.url).netloc for request in asked}
        assert hosts == {urlsplit(url).netloc}, hosts
        browser.close()
    print(f"pictures: {folder}")


if __name__ == "__main__":
    main()
