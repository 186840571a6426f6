"""Someone else's tests, directly before an engine and through the gateway: the result must be the same, test by test.

    .venv/bin/python tests/differential/run.py [--sdk openai,anthropic] [--only PYTEST_EXPRESSION] [--all] [--keep FOLDER]

The test suites of openai-python and anthropic-python (`tests/api_resources`: every route that the SDKs know, in every way
that they can call it) come from their source distributions on PyPI, in the versions named in requirements.txt beside this
file. They run against a stand-in for an engine (engine.py), then against a sparkdash daemon before the same stand-in.
Printed are how many tests passed and failed in both, and each test whose outcome differs; the exit status is 1 if any does
and is not in EXPECTED. The engine also notes what reached it, and differences in that are printed too.

The first run downloads and installs into a folder of its own in the user's cache (about 60 MB); the runs take about a
minute for each SDK. Not part of the test suite, as it needs a package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent))
import ground

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
EXPECTED = {
    r"test_models\.": "the model list is the gateway's own",
    r"chat\.test_completions\..*_list": "chats are not stored: GET is refused, as vLLM does too",
    r"test_responses\..*_create_overload_": "which model is meant must be said",
}
"""Tests that may differ, and why; what is not among them is a mistake."""
FIRST = "our-own-first-request"
PROFILE = """\
profile: stand-in
about: someone else's tests run against it
engine: openai
url: {url}
context: 131072
serves: {names}
"""


@dataclass(frozen=True)
class Sdk:
    """One SDK's suite."""

    name: str
    base: str
    """Path that its base URL has."""
    served: tuple[str, ...]
    """Those of its tests whose routes engines have, and some whose bodies are files."""
    options: tuple[str, ...] = ()


OPENAI = (
    "chat", "responses", "audio", "test_completions.py", "test_responses.py", "test_embeddings.py", "test_models.py",
    "test_moderations.py", "test_images.py", "test_files.py",
)  # fmt: skip
ANTHROPIC = (
    "messages",
    "test_messages.py",
    "test_models.py",
    "beta/messages",
    "beta/test_messages.py",
    "beta/test_models.py",
)
SDKS = {
    "openai": Sdk("openai", "/v1", OPENAI),
    "anthropic": Sdk("anthropic", "", ANTHROPIC, ("-p", "tests._alias_httpx")),
}


def main() -> int:
    """Both ways for each SDK; prints what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdk", default=",".join(SDKS))
    parser.add_argument("--only", default="test", help="pytest's -k")
    parser.add_argument("--all", action="store_true", help="every route that the SDKs know (ten times as many tests)")
    parser.add_argument("--keep", type=Path, help="leave pytest's reports and what the engine saw in this folder")
    args = parser.parse_args()
    home = ground.environment(REQUIREMENTS, more=sources)
    unexpected = 0
    with tempfile.TemporaryDirectory() as scratch:
        out = args.keep or Path(scratch)
        out.mkdir(exist_ok=True, parents=True)
        for name in args.sdk.split(","):
            sdk = SDKS[name]
            wanted = ["-k", args.only, *(("",) if args.all else sdk.served)]
            unexpected += compared(sdk, home, out, wanted)
    return 1 if unexpected else 0


# --- what it needs ----------------------------------------------------------------------------------------------


def sources(home: Path) -> None:
    """The unpacked source distributions of the SDKs that are installed; the wheels are without the tests."""
    pinned = [line for line in REQUIREMENTS.read_text().split() if re.match(r"(openai|anthropic)\b", line)]
    plain = [re.sub(r"\[.*\]", "", line) for line in pinned]
    pip = [home / "venv/bin/python", *ground.PIP]
    subprocess.run([*pip, "download", "--no-binary", ",".join(SDKS), "--no-deps", "-d", home, *plain], check=True)
    for archive in home.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")


@contextmanager
def engine(seen: Path) -> Iterator[str]:
    """The stand-in, which notes what it saw."""
    with ground.started([sys.executable, HERE / "engine.py", seen], r"serving (\S+)") as url:
        yield url


@contextmanager
def gateway(root: Path, url: str) -> Iterator[str]:
    """A daemon in front of the engine; any model's name means that engine, which is up."""
    profile = PROFILE.format(url=url, names=json.dumps(["model", "model_id"]))
    with ground.daemon(root, {"stand-in": profile}, model_names={"*": "stand-in"}) as address:
        asked = {"model": "stand-in", "messages": []}
        urlopen(Request(f"{address}/v1/chat/completions?{FIRST}", json.dumps(asked).encode())).close()
        yield address


# --- the comparison ---------------------------------------------------------------------------------------------


def compared(sdk: Sdk, home: Path, out: Path, wanted: list[str]) -> int:
    """How many tests differ without a reason that is known."""
    outcomes, seen = [], []
    for way in ("direct", "gateway"):
        notes = out / f"{sdk.name}-{way}.seen"
        with tempfile.TemporaryDirectory() as root, engine(notes) as url:
            if way == "direct":
                outcomes.append(outcome(sdk, home, url, out / f"{sdk.name}-{way}.xml", wanted))
            else:
                with gateway(Path(root), url) as address:
                    outcomes.append(outcome(sdk, home, address, out / f"{sdk.name}-{way}.xml", wanted))
        seen.append(Counter(line for line in notes.read_text().splitlines() if FIRST not in line))
    direct, through = outcomes
    differ = sorted(test for test in direct.keys() | through.keys() if verdict(direct, test) != verdict(through, test))
    kinds = Counter(verdict(direct, test) for test in direct)
    known = Counter(why for test in differ for pattern, why in EXPECTED.items() if re.search(pattern, test))
    wrong = [test for test in differ if not any(re.search(pattern, test) for pattern in EXPECTED)]
    print(f"\n{sdk.name}: {len(direct)} tests, directly {dict(kinds)}; through the gateway {len(wrong)} differ")
    for why, count in known.items():
        print(f"  {count} more differ as they should: {why}")
    for test in wrong:
        print(f"  {test}: {verdict(direct, test)} -> {verdict(through, test)} {through.get(test, '')[:300]}")
    lost, more = seen[0] - seen[1], seen[1] - seen[0]
    print(f"  requests at the engine: {seen[0].total()} directly, {seen[1].total()} through the gateway")
    for word, which in (("only directly", lost), ("only through the gateway", more)):
        for request, count in which.most_common(40):
            print(f"    {word}: {count} x {request}")
    return len(wrong)


def verdict(outcomes: dict[str, str], test: str) -> str:
    return outcomes[test].split(":", 1)[0] if test in outcomes else "absent"


def outcome(sdk: Sdk, home: Path, url: str, report: Path, wanted: list[str]) -> dict[str, str]:
    """What became of each test: `passed`, `skipped`, or `failed: ` and the reason."""
    (folder,) = home.glob(f"{sdk.name}-*/")
    argv = [
        home / "venv/bin/python", "-m", "pytest", "-q", "-o", "addopts=", "-o", "asyncio_mode=auto", *sdk.options,
        "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report.resolve()}", *wanted[:2], *(f"tests/api_resources/{place}" for place in wanted[2:]),
    ]  # fmt: skip
    env = {**os.environ, "TEST_API_BASE_URL": url + sdk.base, "NO_PROXY": "*"}
    with report.with_suffix(".log").open("w") as log:
        subprocess.run([*map(str, argv)], cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT, check=False)
    return {
        f"{case.get('classname')}::{case.get('name')}": fate(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def fate(case: ElementTree.Element) -> str:
    for child in case:
        if child.tag in ("failure", "error"):
            return f"failed: {child.get('message')}"
        if child.tag == "skipped":
            return "skipped"
    return "passed"


if __name__ == "__main__":
    sys.exit(main())
