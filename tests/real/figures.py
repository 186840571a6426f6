"""Requests to real engines, and their figures: their own counters, the dashboard's sample, the page for Prometheus."""

import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdash import paths
from sparkdash.domain.container import ENV_MARK

if TYPE_CHECKING:
    import openai


PROMPT = "spark memory engine stream token cache profile swap " * 40


def client(spark: Any) -> "openai.OpenAI":
    """The official client, patient enough for a load."""
    import openai

    return openai.OpenAI(base_url=f"{spark.url}/v1", api_key="none", timeout=300, max_retries=0)


def stream(spark: Any, model: str, tokens: int = 40, temperature: float = 0) -> list[Any]:
    """Ask for so many tokens; return the usage of each chunk that tells it."""
    chunks = client(spark).chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=tokens,
        temperature=temperature,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    return [chunk.usage for chunk in chunks if chunk.usage]


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def engine_page(spark: Any, profile: str) -> str:
    """The engine's own page of metrics, read from the engine itself."""
    return page(f"{spark.state()['engines'][profile]['url']}/metrics")


def counters(spark: Any, profile: str, prefix: str) -> dict[str, float]:
    """The engine's own counters and gauges, summed over labels except the draft position."""
    found: dict[str, float] = {}
    for line in engine_page(spark, profile).splitlines():
        if line.startswith(prefix) and "_bucket{" not in line:
            series, value = line.rsplit(" ", 1)
            name = series.split("{")[0]
            if 'position="' in series:
                name += "@" + series.split('position="')[1][0]
            found[name] = found.get(name, 0) + float(value)
    return found


def sampled(state: dict[str, Any], profile: str, metric: str) -> Any:
    """A value of the last sample, or None."""
    engines = (state["sample"] or {}).get("engines", {})
    return engines.get(profile, {}).get("values", {}).get(metric)


def exported(spark: Any, metric: str, profile: str) -> float | None:
    """A counter of the profile's engine on the page for Prometheus; None while it is not there."""
    marks = (f"sparkdash_{metric}{{", f'profile="{profile}"', 'source="engine"')
    lines = page(f"{spark.url}/metrics").splitlines()
    found = [float(line.rsplit(" ", 1)[1]) for line in lines if all(mark in line for mark in marks)]
    return found[0] if found else None


def podman(*words: str) -> str:
    """What a podman command prints."""
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout


def processes(spark: Any) -> list[int]:
    """Every process of an engine of this daemon."""
    mark = f"{ENV_MARK}={paths.owner(spark.root / 'state')}/".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
