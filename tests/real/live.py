"""Every live figure of /api/state and /metrics, held against the engine's own metrics and what clients saw.

    sh tests/real/setup.sh; sh tests/real/llama.sh            # once: a real vLLM, a real llama-server, tiny models
    .venv/bin/python tests/real/live.py [--seconds 120] [--streams 4] [--engine vllm|llama|sim] [--speculate] [--big]

A whole daemon with a real engine and a tiny model; clients stream through the gateway. Beside it this program reads the
engine's own page some thirty times a second and notes when each token reached a client. Each figure of /api/state is computed
again over the very window that the figure names (`at` and `rate_s`), and compared: rates and shares within 2 %, counters
exactly. An engine reads its counters at an unknown moment while it is asked, so a rate also fits where the counters at
the ends of these delays allow it; how many samples needed that is printed apart. Ends with 1 where a figure misses.
With `--speculate` an event holds several tokens, so what clients saw is compared at the end alone. The tiny model makes
tokens faster than vLLM writes them: events hold several, and the gateway estimates. With `--big` each token has its
own event.

`--engine sim` tries this program itself on the simulated vLLM, which needs no set-up.

The figures are those of a tiny model on a CPU. They show that the sums are right, and nothing about a GPU.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "shared"), str(HERE)]
os.environ.setdefault("CONTAINERS_CONF", str(HERE.parent / "podman" / "containers.conf"))

import tiny_profiles  # noqa: E402 - tests/ is no package
import yaml  # noqa: E402
from daemons import Daemon  # noqa: E402

from sparkdash.catalog import yaml12  # noqa: E402

BOUND = 0.02
POLL_S = 0.03
DELAY_S = 1.0
"""Longest delay of an answer to the daemon; a gauge must be one that the engine showed within it."""
WORDS = ["spark", "memory", "engine", "stream", "token", "cache", "profile", "swap"]
ASCII_ONLY = {"allowed_token_ids": [*range(94)]}
"""Keeps vLLM's tiny model to printable ASCII, where each token is one character. A client counts characters, as an event
may hold several tokens. Half a character would have no text.
"""
LINE = re.compile(r"^([a-zA-Z_:]\w*(?::\w+)*)(?:\{(.*)\})? (\S+)$")


def read(url: str, timeout: float = 10) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return str(answer.read().decode())


def totals(page: str) -> dict[str, float]:
    """Every sample of a page by its name, added up over its labels; buckets by their bound."""
    found: dict[str, float] = defaultdict(float)
    for line in page.splitlines():
        if (hit := LINE.match(line)) is None:
            continue
        name, labels, value = hit.groups()
        bound = re.search(r'(?:^|,)le="([^"]+)"', labels or "")
        position = re.search(r'(?:^|,)position="(\d+)"', labels or "")
        label = bound[1] if bound else position[1] if position else ""
        found[f"{name}|{label}" if label else name] += float(value)
    return dict(found)


class Page:
    """The engine's own page over time."""

    def __init__(self, url: str, slots: str | None) -> None:
        self._url, self._slots = url, slots
        self.begun: list[float] = []
        self.ended: list[float] = []
        self.seen: list[dict[str, float]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            begun = time.time()
            try:
                seen = totals(read(self._url))
                if self._slots:
                    seen |= slot_totals(json.loads(read(self._slots)))
            except OSError:
                continue
            self.begun.append(begun)
            self.ended.append(time.time())
            self.seen.append(seen)
            self.over.wait(POLL_S)

    def between(self, name: str, at: float) -> tuple[float, float]:
        """Least and most that a counter can have been at that time, by the readings around it."""
        before = bisect.bisect_right(self.ended, at) - 1
        after = bisect.bisect_left(self.begun, at)
        least = self.seen[before].get(name, 0.0) if before >= 0 else 0.0
        most = self.seen[min(after, len(self.seen) - 1)].get(name, 0.0)
        return least, most

    def value(self, name: str, at: float) -> float:
        """A counter at that time, linear between two readings."""
        moments = [(a + b) / 2 for a, b in zip(self.begun, self.ended, strict=True)]
        place = bisect.bisect_left(moments, at)
        if place == 0 or place >= len(moments):
            return self.seen[min(place, len(moments) - 1)].get(name, 0.0)
        before, after = self.seen[place - 1].get(name, 0.0), self.seen[place].get(name, 0.0)
        return before + (after - before) * (at - moments[place - 1]) / (moments[place] - moments[place - 1])


def slot_totals(slots: list[dict[str, Any]]) -> dict[str, float]:
    """What llama-server's slots hold now."""
    busy = [slot for slot in slots if slot.get("is_processing")]
    return {"slots|busy": float(len(busy))}


@dataclass
class Stream:
    """One answer as its client read it."""

    begun: float
    times: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)


class Client(threading.Thread):
    """Streams one answer after another."""

    def __init__(self, url: str, model: str, tokens: int, number: int, until: float, extra: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._url, self._model, self._tokens, self._number, self._until = url, model, tokens, number, until
        self._extra = extra
        self.streams: list[Stream] = []

    def run(self) -> None:
        turn = 0
        while time.time() < self._until:
            self.streams.append(self._ask(turn))
            turn += 1

    def _ask(self, turn: int) -> Stream:
        words = [WORDS[(place * (self._number + turn) + turn) % len(WORDS)] for place in range(200 + 40 * self._number)]
        body = {
            "model": self._model, "max_tokens": self._tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": " ".join(words)}],
            **self._extra,
        }  # fmt: skip
        request = urllib.request.Request(
            f"{self._url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        stream = Stream(time.time())
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    stream.usage = event.get("usage") or stream.usage
                    if event["choices"] and (text := event["choices"][0]["delta"].get("content")):
                        stream.times += [time.time()] * (len(text) if self._extra is ASCII_ONLY else 1)
        return stream


@dataclass
class Verdicts:
    """What each figure's samples were, beside the other sum."""

    rows: dict[str, list[tuple[float, bool, bool]]] = field(default_factory=lambda: defaultdict(list))

    def rate(self, name: str, told: float | None, own: float | None, least: float, most: float) -> None:
        """Note a rate: its error, whether it is within the bound, and whether the readings' delays explain it."""
        if told is None or own is None:
            return
        error = abs(told - own) / own if own else abs(told)
        fits = least * (1 - BOUND) <= told <= most * (1 + BOUND)
        self.rows[name].append((error, error <= BOUND, fits))

    def exact(self, name: str, told: float | None, allowed: set[float]) -> None:
        """Note a counter or gauge that must be one of the values that were true at its moment."""
        if told is not None:
            self.rows[name].append((0.0 if told in allowed else 1.0, told in allowed, told in allowed))

    def print(self) -> bool:
        print(f"{'figure':<34}{'samples':>8}{'in 2 %':>8}{'in the delay':>14}{'misses':>8}{'median':>9}{'worst':>9}")
        whole = True
        for name, rows in sorted(self.rows.items()):
            errors = sorted(error for error, _, _ in rows)
            sharp = sum(within for _, within, _ in rows)
            fits = sum(fit and not within for _, within, fit in rows)
            misses = len(rows) - sharp - fits
            whole = whole and not misses
            told = f"{name:<34}{len(rows):>8}{sharp:>8}{fits:>14}{misses:>8}"
            print(f"{told}{errors[len(errors) // 2]:>9.2%}{errors[-1]:>9.2%}")
        return whole and bool(self.rows)


@dataclass(frozen=True)
class Names:
    """The engine's own names."""

    generated: str
    running: str
    waiting: str
    rates_live: bool
    queries: str = ""
    hits: str = ""
    kv: str = ""
    drafted: str = ""
    accepted: str = ""
    drafts: str = ""
    accepted_at: str = ""
    ttft: str = ""
    prompt: str = ""
    prompt_s: str = ""


VLLM = Names(
    "vllm:generation_tokens_total", "vllm:num_requests_running", "vllm:num_requests_waiting", True,
    "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:kv_cache_usage_perc",
    "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_per_pos_total", "vllm:time_to_first_token_seconds",
)  # fmt: skip
LLAMA = Names(
    "llamacpp:tokens_predicted_total", "llamacpp:requests_processing", "llamacpp:requests_deferred", False,
    prompt="llamacpp:prompt_tokens_total", prompt_s="llamacpp:prompt_seconds_total",
)  # fmt: skip


def check_engine(page: Page, names: Names, sample: dict[str, Any], verdicts: Verdicts) -> None:
    """Hold the figures of one sample against the engine's page over the same windows."""
    values, at = sample["values"], sample["at"]
    if names.rates_live and (rate_s := sample.get("rate_s")) and values.get("decode_tok_s"):
        name, begin = names.generated, at - rate_s
        (low0, high0), (low1, high1) = page.between(name, begin), page.between(name, at)
        own = (page.value(name, at) - page.value(name, begin)) / rate_s
        verdicts.rate("decode", values["decode_tok_s"], own, (low1 - high0) / rate_s, (high1 - low0) / rate_s)
    if window_s := sample.get("window_s"):
        for figure, part, whole, plus in (
            ("prefix_hit", names.hits, names.queries, 0.0),
            ("acceptance", names.accepted, names.drafted, 0.0),
            ("acceptance_length", names.accepted, names.drafts, 1.0),
            ("prompt_tok_s", names.prompt, names.prompt_s, 0.0),
        ):
            check_share(page, figure, (part, whole, plus), (at - window_s, at), values.get(figure), verdicts)
        for position, told in enumerate(sample.get("acceptance_at") or ()):
            part = f"{names.accepted_at}|{position}"
            window = (at - window_s, at)
            check_share(page, f"acceptance at {position}", (part, names.drafts, 0.0), window, told, verdicts)
    check_quantiles(page, names.ttft, sample, verdicts)
    near = [seen for begun, ended, seen in zip(page.begun, page.ended, page.seen, strict=True)
            if ended > at - 0.1 and begun < at + DELAY_S]  # fmt: skip
    for figure, name in (("running", names.running), ("waiting", names.waiting)):
        verdicts.exact(figure, values.get(figure), {seen.get(name, 0.0) for seen in near})
    shares = [seen[names.kv] for seen in near if names.kv in seen]
    if shares and values.get("kv_used") is not None:
        told = values["kv_used"]
        verdicts.rate("kv_used", told, min(shares, key=lambda one: abs(one - told)), min(shares), max(shares))


def check_share(
    page: Page,
    figure: str,
    names: tuple[str, str, float],
    window: tuple[float, float],
    told: float | None,
    verdicts: Verdicts,
) -> None:
    """Hold a quotient of two counters' gains against the page."""
    part, whole, plus = names
    if not part or told is None:
        return
    begin, end = window
    gain = {name: page.value(name, end) - page.value(name, begin) for name in (part, whole)}
    edges = {name: (page.between(name, begin), page.between(name, end)) for name in (part, whole)}
    if gain[whole] <= 0:
        return
    least = {name: max(0.0, e1[0] - e0[1]) for name, (e0, e1) in edges.items()}
    most = {name: e1[1] - e0[0] for name, (e0, e1) in edges.items()}
    low = plus + least[part] / most[whole] if most[whole] else 0.0
    high = plus + most[part] / least[whole] if least[whole] else float("inf")
    verdicts.rate(figure, told, plus + gain[part] / gain[whole], low, high)


def check_clients(clients: list[Client], sample: dict[str, Any], profile: str, verdicts: Verdicts) -> None:
    """Hold the gateway's own figures against what the clients read over the same window."""
    gateway, at = sample["engines"][profile].get("gateway") or {}, sample["at"]
    times = sorted(moment for client in clients for stream in client.streams for moment in stream.times)

    def seen(moment: float) -> int:
        return bisect.bisect_right(times, moment)

    if (rate_s := gateway.get("rate_s")) and gateway.get("decode_tok_s"):
        own = (seen(at) - seen(at - rate_s)) / rate_s
        least = (seen(at - 0.05) - seen(at - rate_s + 0.05)) / rate_s
        most = (seen(at + 0.05) - seen(at - rate_s - 0.05)) / rate_s
        verdicts.rate("~ decode (gateway)", gateway["decode_tok_s"], own, least, most)
    told = sum(one["output_tokens"] or 0 for one in sample["requests"].values())
    running = [stream for client in clients for stream in client.streams
               if stream.begun <= at and (not stream.times or stream.times[-1] > at)]  # fmt: skip
    if told and len(running) == len(sample["requests"]):
        counts = [sum(bisect.bisect_right(one.times, at + shift) for one in running) for shift in (-0.1, 0.0, 0.1)]
        verdicts.rate("~ tokens so far, all requests", float(told), float(counts[1]), counts[0] - 4, counts[2] + 4)
    rates = [(one["rate_s"], one["tok_s"]) for one in sample["requests"].values() if one["tok_s"] and one["rate_s"]]
    if rates and len(rates) == len(running) and all(one.times for one in running):
        # the younger a request the shorter its window: by age the two lists are in one order
        running.sort(key=lambda one: one.times[0], reverse=True)
        own = slack = 0.0
        for stream, (covers, _) in zip(running, sorted(rates), strict=True):
            own += (bisect.bisect_right(stream.times, at) - bisect.bisect_right(stream.times, at - covers)) / covers
            slack += 2.0 / covers
        verdicts.rate("~ rates of requests, added up", sum(rate for _, rate in rates), own, own - slack, own + slack)


EXPORTED = {
    "output_tokens": "generated", "prefix_queries": "queries", "prefix_hits": "hits", "draft_steps": "drafts",
    "draft_tokens": "drafted", "draft_accepted_tokens": "accepted",
}  # fmt: skip
"""Exported counters, by the engine's own that they are made of."""


def check_exported(page: Page, names: Names, daemon: Daemon, before: dict[str, float], verdicts: Verdicts) -> None:
    """Hold the exported counters against the growth of the idle engine's own ones since before the first request."""
    exported, last = totals(read(f"{daemon.url}/metrics")), page.seen[-1]
    for counter, name in EXPORTED.items():
        own = getattr(names, name)
        told = exported_total(exported, f"sparkdash_{counter}_total")
        if own and told is not None and own in last:
            verdicts.exact(f"exported {counter}", told, {last[own] - before.get(own, 0.0)})
    if names.ttft:
        count = f"{names.ttft}_sum"
        own_sum, told = last.get(count, 0.0) - before.get(count, 0.0), exported.get("sparkdash_prefill_seconds_total")
        verdicts.rate("exported prefill_seconds", told, own_sum, own_sum, own_sum)


def exported_total(exported: dict[str, float], name: str) -> float | None:
    """A counter over all of its positions; None where it is not exported."""
    found = [value for key, value in exported.items() if key.partition("|")[0] == name]
    return sum(found) if found else None


def check_quantiles(page: Page, name: str, sample: dict[str, Any], verdicts: Verdicts) -> None:
    """Hold the quantiles against the gain of the histogram's buckets over the same window."""
    at, window_s = sample["at"], sample.get("window_s")
    if not name or not window_s:
        return
    first, last = around(page, at - window_s), around(page, at)
    for figure, share in (("ttft_p50_s", 0.5), ("ttft_p95_s", 0.95)):
        told = sample["values"].get(figure)
        pairs = [quantile(name, before, after, share) for before in first for after in last]
        own = [value for value in pairs if value is not None]
        if told is not None and own:
            verdicts.rate(figure, told, min(own, key=lambda value: abs(value - told)), min(own), max(own))


def around(page: Page, at: float) -> list[dict[str, float]]:
    """The last reading that ended before, and the first that began after that time."""
    before, after = bisect.bisect_right(page.ended, at) - 1, bisect.bisect_left(page.begun, at)
    places = range(max(0, before), min(after, len(page.seen) - 1) + 1)
    return [page.seen[place] for place in places]


def quantile(name: str, before: dict[str, float], after: dict[str, float], share: float) -> float | None:
    """Quantile of a histogram's gain, linear within a bucket."""
    begin = f"{name}_bucket|"
    bounds = sorted((float(key.removeprefix(begin)), key) for key in after if key.startswith(begin))
    gains = [(bound, after[key] - before.get(key, 0.0)) for bound, key in bounds]
    if not gains or gains[-1][1] <= 0:
        return None
    wanted, low, below = share * gains[-1][1], 0.0, 0.0
    for bound, count in gains:
        if count >= wanted:
            return low if bound == float("inf") else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return None


def check_counts(clients: list[Client], daemon: Daemon, profile: str, verdicts: Verdicts) -> None:
    """Hold the gateway's counters of ended requests against the clients' usage."""
    gateway = daemon.state()["sample"]["engines"][profile]["gateway"]
    streams = [stream for client in clients for stream in client.streams]
    for told, key in (("output_tokens", "completion_tokens"), ("prompt_tokens", "prompt_tokens")):
        verdicts.exact(f"~ {told} of all", gateway[told], {sum(stream.usage[key] for stream in streams)})
    verdicts.exact("~ requests", gateway["requests"], {len(streams)})
    rows = [row for row in daemon.state()["recent"] if row["profile"] == profile and not row["internal"]]
    mine = sorted((stream.times[0] - stream.begun) for stream in streams if stream.times)
    slowest = max((row["ttft_s"] for row in rows if row["ttft_s"]), default=None)
    if slowest is not None:
        verdicts.rate("request ttft, the longest", slowest, slowest, 0.0, mine[-1] + 0.05)


def main() -> int:
    """Serve, stream, compare, print."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="sparkdash-live-") as name:
        daemon, profile, names = serving(Path(name), args)
        try:
            return compared(daemon, profile, names, args)
        finally:
            daemon.end()


def serving(root: Path, args: argparse.Namespace) -> tuple[Daemon, str, Names]:
    """A daemon that knows the tiny profile of that engine."""
    if args.engine == "llama":
        llama = (HERE / ".llama").resolve()
        daemon = Daemon(root, runtime="process", stop_grace_s=20, sample_s=1.0)
        text = tiny_profiles.llama_document(
            llama, "live-llama", args={"ctx-size": 4096 * args.streams, "parallel": args.streams, "threads": 1}
        )
        daemon.write("live-llama", text)
        return daemon.start(), "live-llama", LLAMA
    if args.engine == "sim":
        daemon = Daemon(root, runtime="process", reserve_gib=0, sample_s=1.0)
        speculation = ", acceptance: [0.7, 0.5]" if args.speculate else ""
        sim = f"{{load_s: 0.1, memory_gib: 0.1{speculation}}}"
        daemon.write("live-sim", f"profile: live-sim\nengine: sim\ncontext: 32768\nsim: {sim}\n")
        return daemon.start(), "live-sim", VLLM
    from conftest import HostFs

    daemon = Daemon(root, runtime="podman", reserve_gib=1.0, stop_grace_s=20, sample_s=1.0)
    engine = (HERE / ".engine").resolve()
    text = tiny_profiles.document(engine, HostFs(root), "live-vllm")
    daemon.write("live-vllm", with_big_model(text, engine, root / "big") if args.big else text)
    return daemon.start(), "live-vllm/ngram" if args.speculate else "live-vllm", VLLM


def with_big_model(document: str, engine: Path, folder: Path) -> str:
    """The profile with a model of 600 MiB, so slow that the server writes each token by itself, as on a Spark."""
    subprocess.run([engine / "venv/bin/python", HERE / "big_qwen.py", engine / "tiny-qwen3", folder], check=True)
    profile = yaml.safe_load(document)
    mounts = [*profile["mounts"], {"source": str(folder), "target": str(folder)}]
    return yaml12.dump(profile | {"models": {"target": {"path": str(folder)}}, "mounts": mounts, "memory": {}})


def compared(daemon: Daemon, profile: str, names: Names, args: argparse.Namespace) -> int:
    """Stream for a while beside both readers, then compare everything that was seen."""
    print(f"{profile}: waiting for the engine", flush=True)
    daemon.post("/api/use", {"profile": profile})
    state = daemon.until(lambda one: (one["engines"].get(profile) or {}).get("state") == "ready", timeout=300)
    url = state["engines"][profile]["url"]
    daemon.until(lambda one: profile in ((one["sample"] or {}).get("engines") or {}))
    page = Page(f"{url}/metrics", f"{url}/slots" if args.engine == "llama" else None)
    before = totals(read(f"{url}/metrics"))
    reader = threading.Thread(target=page.run, daemon=True)
    reader.start()
    end = time.time() + args.seconds
    extra = ASCII_ONLY if args.engine == "vllm" else {}
    clients = [Client(daemon.url, profile, args.tokens, number, end, extra) for number in range(1, args.streams + 1)]
    for client in clients:
        client.start()
    samples = watch(daemon, clients)
    daemon.until(lambda one: not one["requests"] and not (one["sample"] or {}).get("requests"))
    time.sleep(7)  # a sample and a reading of the idle engine come after the last request
    page.over.set()
    reader.join(timeout=20)
    verdicts = Verdicts()
    for sample in samples:
        engine = sample["engines"].get(profile)
        if engine and engine["error"] is None and page.begun[0] + 3 < engine["at"] < page.ended[-1]:
            check_engine(page, names, engine, verdicts)
            if not args.speculate:
                check_clients(clients, sample, profile, verdicts)
    check_exported(page, names, daemon, before, verdicts)
    check_counts(clients, daemon, profile, verdicts)
    tokens = sum(stream.usage.get("completion_tokens", 0) for client in clients for stream in client.streams)
    seen = sum(len(stream.times) for client in clients for stream in client.streams)
    print(
        f"{len(samples)} samples, {len(page.seen)} readings, {tokens} tokens, {seen} seen by clients;"
        f" load {os.getloadavg()[0]:.1f}"
    )
    return 0 if verdicts.print() else 1


def watch(daemon: Daemon, clients: list[Client]) -> list[dict[str, Any]]:
    found: dict[float, dict[str, Any]] = {}
    while any(client.is_alive() for client in clients):
        sample = daemon.state()["sample"]
        if sample is not None:
            found[sample["at"]] = sample
        time.sleep(0.2)
    return [found[at] for at in sorted(found)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=600, help="output tokens of each answer")
    parser.add_argument("--engine", choices=("vllm", "llama", "sim"), default="vllm")
    parser.add_argument("--speculate", action="store_true", help="vLLM with prompt lookup")
    parser.add_argument("--big", action="store_true", help="vLLM with a model of 600 MiB")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
