"""What reading the shipped profiles costs, and what PyYAML's own ways of reading the same text cost in the same run.

Run it with `.venv/bin/python tests/perf/catalog.py`; it prints milliseconds of CPU, each of fresh processes and the
best of them, because a process reads the catalog once and a busy machine only adds.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

RUNS = 10
WAYS = {
    "the whole catalog": "from sparkdash.catalog import load as work; given = [folder]",
    "only its YAML, with marks": "from sparkdash.catalog.yaml12 import read; work = lambda texts: [*map(read, texts)]; given = texts",
    "PyYAML's SafeLoader": "import yaml; work = lambda texts: [yaml.load(one, yaml.SafeLoader) for one in texts]; given = texts",
    "PyYAML's CSafeLoader": "import yaml; work = lambda texts: [yaml.load(one, yaml.CSafeLoader) for one in texts]; given = texts",
}
SCRIPT = """
import time
from sparkdash.paths import shipped_profiles
folder = shipped_profiles()
texts = [path.read_text() for path in folder.glob("*.yaml")]
{way}
before = time.process_time()
work(given)
print(1000 * (time.process_time() - before))
"""


def measured(way: str) -> list[float]:
    """Milliseconds of CPU in each of RUNS processes; imports are not counted."""
    argv = [sys.executable, "-c", SCRIPT.format(way=way)]
    return [float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout) for _ in range(RUNS)]


def main() -> None:
    """Measure and print."""
    for name, way in WAYS.items():
        found = measured(way)
        sys.stdout.write(
            f"{name:<28} median {median(found):6.1f} ms, best {min(found):6.1f}, worst {max(found):6.1f}\n"
        )


if __name__ == "__main__":
    main()
