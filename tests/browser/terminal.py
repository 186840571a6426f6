"""`sparkdash web` in a real Chromium, against a demo of its own: `make browser`, by hand.

Needs what `phone.py` needs. Opens the dashboard with the token, switches to another profile by keys alone, and waits
until the daemon says that its engine serves. No request may leave the box, and no tab may outlive the browser.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from phone import TARGET, WAIT_MS, demo
from playwright.sync_api import Page, sync_playwright


@contextmanager
def served(url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run `sparkdash web` for the daemon at `url`; give its address and process."""
    words = [sys.executable, "-m", "sparkdash", "web", "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "SPARKDASH_URL": url}) as child:
        try:
            assert child.stdout is not None
            found = re.search(r"http://\S+(?=\")", "".join(iter(child.stdout.readline, "}\n")))
            assert found is not None
            yield found[0], psutil.Process(child.pid)
        finally:
            child.send_signal(signal.SIGTERM)


def states(url: str) -> dict[str, str]:
    with urllib.request.urlopen(f"{url}/api/state", timeout=30) as reply:
        return {name: engine["state"] for name, engine in json.load(reply)["engines"].items()}


def switch(page: Page, url: str) -> None:
    """Choose TARGET on the page of profiles, confirm, and wait until it serves."""
    for key in ("2", "/"):
        page.keyboard.press(key)
        page.wait_for_timeout(500)
    page.keyboard.type(TARGET, delay=50)
    for _ in range(3):  # ends the search, chooses the row, confirms the plan
        page.keyboard.press("Enter")
        page.wait_for_timeout(2000)
    deadline = time.monotonic() + WAIT_MS / 1000
    while states(url).get(TARGET) != "ready":
        assert time.monotonic() < deadline, states(url)
        page.wait_for_timeout(200)


def main() -> None:
    """Run all checks; exit with a traceback at the first that fails."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="sparkdash-browser-"))
    with demo() as url, served(url) as (address, server), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 700})
        asked: set[str] = set()
        page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
        page.goto(address)
        page.wait_for_selector("body.-first-byte", timeout=WAIT_MS)
        page.wait_for_selector(".xterm-helper-textarea:focus", timeout=WAIT_MS, state="attached")
        page.wait_for_timeout(2000)
        switch(page, url)
        page.keyboard.press("1")
        page.wait_for_timeout(1500)
        page.screenshot(path=folder / "terminal.png")
        assert "token" not in page.url
        assert asked == {urlsplit(address).netloc}, asked
        assert len(server.children(recursive=True)) >= 1
        browser.close()
        psutil.wait_procs(server.children(recursive=True), timeout=30)
        assert server.children(recursive=True) == []
    print(f"the served dashboard switched to {TARGET}; pictures: {folder}")


if __name__ == "__main__":
    main()
