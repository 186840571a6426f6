"""Reading: one scrape of an engine, reduced by its adapter's MetricNames to what the formulas need. Pure."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from sparkdash.engines.probes import MetricNames
from sparkdash.telemetry.exposition import ParsedSample, Scrape


class Slot(NamedTuple):
    """Busy slot of a llama-server."""

    task: int
    held: int | None
    """Tokens in the slot's context: the prompt batched so far and the generated tokens."""
    prefilled: int | None
    """Prompt tokens computed; None before autumn 2025."""
    decoded: int

    @property
    def computed(self) -> int:
        """Prompt tokens computed; 0 where the answer does not tell."""
        return self.prefilled or 0


_NEW = Slot(task=-1, held=None, prefilled=None, decoded=0)


class Slots(NamedTuple):
    """Answer of /slots.

    `capacity` is the sum of all slots' contexts. That is too much where slots share one cache (`--kv-unified`, or
    `--parallel` left to llama-server), which /slots does not tell.
    """

    busy: dict[int, Slot]
    capacity: int | None

    def idle(self) -> "Slots":
        return Slots({}, self.capacity)

    @property
    def kv_used(self) -> float | None:
        """Used share of all contexts, 0..1."""
        held = [slot.held for slot in self.busy.values()]
        if not self.capacity or None in held:
            return None
        return sum(tokens or 0 for tokens in held) / self.capacity


def parse_slots(body: bytes | str) -> Slots | None:
    """Parse the answer of GET /slots; None for anything else. Never raises."""
    rows = _rows(body)
    if rows is None:
        return None
    contexts = [_count(row.get("n_ctx")) for row in rows]
    busy = [_slot(row, place) for place, row in enumerate(rows) if row.get("is_processing")]
    return Slots(
        {slot.task: slot for slot in busy}, None if None in contexts else sum(tokens or 0 for tokens in contexts)
    )


def _json(body: bytes | str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _rows(body: bytes | str) -> list[dict[str, Any]] | None:
    rows = _json(body)
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None


def _slot(row: dict[str, Any], place: int) -> Slot:
    following = row.get("next_token")
    if isinstance(following, list):  # since late 2025; an object before
        following = following[0] if following else None
    task = _count(row.get("id_task"))
    return Slot(
        task=-1 - place if task is None else task,
        held=_count(row.get("n_prompt_tokens")),
        prefilled=_count(row.get("n_prompt_tokens_processed")),
        decoded=(_count(following.get("n_decoded")) or 0) if isinstance(following, dict) else 0,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class _Ledger:
    """Compares a counter's gain at the end of tasks with the tokens seen in slots while those tasks ran.

    A larger gain was never seen: the last tokens of a task that ended between two looks, or all tokens of a task that
    lived between them. A task may end after the counter was read and before the slots were. Its tokens are carried to
    the next look, and no further, as an aborted task never reaches the counter.
    """

    def __init__(self) -> None:
        self._counter: float | None = None
        self._carried = 0.0

    def unseen(self, counter: float | None, ended: float) -> float:
        gained = counter - self._counter if counter is not None and self._counter is not None else 0.0
        self._counter = counter
        settled = min(max(gained, 0.0), self._carried + ended)
        self._carried = min(self._carried + ended - settled, ended)
        return max(gained, 0.0) - settled


class SlotTally:
    """Live token counters, built from one answer of /slots after another. Needs a new one after an engine's restart."""

    def __init__(self) -> None:
        self.decoded = 0.0
        """Tokens generated since the first look."""
        self.prefilled = 0.0
        self._before: Slots | None = None
        self._decodes = _Ledger()
        self._prefills = _Ledger()

    def add(self, slots: Slots, decoded: float | None, prefilled: float | None) -> None:
        """Add one answer, with the engine's own counters as read just before it."""
        old = self._before.busy if self._before else slots.busy
        self._before = slots
        gone = [slot for task, slot in old.items() if task not in slots.busy]
        pairs = [(old.get(task, _NEW), slot) for task, slot in slots.busy.items()]
        self.decoded += sum(_gain(was.decoded, now.decoded) for was, now in pairs)
        self.prefilled += sum(_gain(was.computed, now.computed) for was, now in pairs)
        self.decoded += self._decodes.unseen(decoded, sum(slot.decoded for slot in gone))
        ended = _ended_prompts(pairs, gone)
        self.prefilled += self._prefills.unseen(prefilled, sum(slot.computed for slot in ended))


def _ended_prompts(pairs: list[tuple[Slot, Slot]], gone: list[Slot]) -> list[Slot]:
    """Find slots whose prompt has ended since the last answer: with its first token, or with its task."""
    begun = [now for was, now in pairs if now.decoded and not was.decoded]
    return begun + [slot for slot in gone if not slot.decoded]


def _gain(was: int, now: int) -> int:
    return now - was if now >= was else now


_ACCEPTED = re.compile(r"accept(?:-(\d{1,3}))?")


def _verified_drafts(samples: Sequence[ParsedSample]) -> tuple[float, float, dict[int, float]] | None:
    """Add up drafts, their tokens and those accepted by position; None without samples, or if one cannot be read."""
    if not samples:
        return None
    drafts = draft_tokens = 0.0
    accepted_at: dict[int, float] = {}
    for sample in samples:
        count = sample.value
        drafted, accepted = _drafted(sample.labels.get("k", "")), _accepted(sample.labels.get("outcome", ""))
        if drafted is None or accepted is None or accepted > drafted:
            return None
        drafts += count
        draft_tokens += drafted * count
        for position in range(drafted):
            accepted_at[position] = accepted_at.get(position, 0.0) + (count if position < accepted else 0.0)
    return drafts, draft_tokens, accepted_at


def _drafted(k: str) -> int | None:
    return int(k) - 1 if re.fullmatch(r"\d{1,3}", k) and int(k) > 1 else None


def _accepted(outcome: str) -> int | None:
    if outcome == "reject":
        return 0
    found = _ACCEPTED.fullmatch(outcome)
    return int(found[1] or 1) if found else None


class Counters(NamedTuple):
    """Figures that only grow while an engine lives; None where the engine does not report one."""

    generated: float | None = None
    prefilled: float | None = None
    prompted: float | None = None
    hits: float | None = None
    queries: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted: float | None = None
    ttft_sum: float | None = None
    ttft_count: float | None = None
    preemptions: float | None = None
    timed_prompt: float | None = None
    """Computed prompt tokens that move together with `prompt_s`."""
    prompt_s: float | None = None
    decode_s: float | None = None
    """Seconds between tokens, summed over requests: vLLM 0.32's equal its sum of decode times."""

    def since(self, before: Self) -> Self:
        return type(self)(*(None if a is None or b is None else b - a for a, b in zip(before, self, strict=True)))

    def known_or(self, before: Self) -> Self:
        return type(self)(*(a if b is None else b for a, b in zip(before, self, strict=True)))

    def known_or_zero(self) -> Self:
        """Fill unknown counters with 0: a counter that is not there yet begins at 0."""
        return type(self)(*(value or 0.0 for value in self))

    def plus(self, growth: Self) -> Self:
        """Add the known growth of each counter; growth below 0 counts as none."""
        return type(self)(*(a if b is None else (a or 0.0) + max(0.0, b) for a, b in zip(self, growth, strict=True)))

    @property
    def computed(self) -> float | None:
        """Computed prompt tokens; without such a counter, all of them less the cache hits (counted at admission)."""
        if self.prefilled is not None or self.prompted is None or self.hits is None:
            return self.prefilled
        return max(0.0, self.prompted - self.hits)

    @property
    def all_prompted(self) -> float | None:
        """Prompt tokens: the engine's own counter of them, else those computed and those found."""
        if self.prompted is not None or self.prefilled is None or self.hits is None:
            return self.prompted
        return self.prefilled + self.hits

    @property
    def fell(self) -> bool:
        """Whether, in a difference, a counter went back, as after a restart of the engine."""
        return any(change is not None and change < 0 for change in self)


class Gauges(NamedTuple):
    """Current values; shares are 0..1."""

    running: float | None = None
    waiting: float | None = None
    kv_used: float | None = None
    kv_capacity: float | None = None
    decode: float | None = None
    deferred: float | None = None
    awake: float | None = None
    acceptance: float | None = None
    acceptance_length: float | None = None
    decoding: float | None = None
    """Running requests that have their first token."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters and gauges of one scrape of an engine; equal to another that tells the same at another time."""

    at: float = field(compare=False)
    """Monotonic seconds of the request: an answer may lie in a socket while this process is held up."""
    counters: Counters
    gauges: Gauges
    accepted_at: dict[int, float]
    ttft: dict[float, float]
    """Requests by upper bound of their time to first token (s), cumulative; the last bound is infinite."""
    started: float | None = None
    moving: tuple[float | None, ...] = ()
    moving_without_slots: tuple[float | None, ...] = ()
    """As `moving`, for engines without readable slots; empty otherwise."""
    took: float = field(default=0.0, compare=False)

    def with_health(self, body: bytes) -> "Reading":
        """Replace KV figures by those of TensorFold's pool, and add what its metrics lack. Reads anything."""
        told = _json(body)
        told = told if isinstance(told, dict) else {}
        pool, free, cached, rounds = (
            _count(told.get(key)) for key in ("pool_tokens", "pool_free_tokens", "cached_tokens_total", "rounds_total")
        )
        counters, gauges, busy = self.counters, self.gauges, told.get("busy")
        if pool and free is not None:
            gauges = gauges._replace(kv_used=max(0.0, 1 - free / pool), kv_capacity=pool)
        if gauges.running is None and isinstance(busy, bool):
            gauges = gauges._replace(running=float(busy))
        return replace(
            self,
            gauges=gauges,
            counters=counters._replace(
                hits=cached if counters.hits is None else counters.hits,
                drafts=rounds if counters.drafts is None else counters.drafts,
            ),
        )

    def with_slots(self, slots: Slots, tally: SlotTally) -> "Reading":
        """Replace figures that move only at a request's end by llama.cpp's live ones. Updates `tally`."""
        tally.add(slots, self.counters.generated, self.counters.prefilled)
        is_blind = any(slot.prefilled is None for slot in slots.busy.values())
        return replace(
            self,
            moving_without_slots=self.moving_without_slots if is_blind else (),
            counters=self.counters._replace(generated=tally.decoded, prefilled=tally.prefilled),
            gauges=self.gauges._replace(
                kv_used=slots.kv_used,
                kv_capacity=slots.capacity,
                decoding=float(sum(slot.decoded > 0 for slot in slots.busy.values())),
            ),
        )


def sample_names(names: MetricNames) -> frozenset[str]:
    lists = (
        names.generated, names.prefilled, names.prompted, names.timed_prompt, names.prompt_seconds,
        names.decode_gauge, names.prefix_hits, names.prefix_queries,
        names.prefix_misses, names.kv_used, names.kv_capacity, names.kv_info, names.running, names.waiting,
        names.drafts, names.draft_tokens, names.verified, names.accepted, names.accepted_at, names.drafted_at,
        names.acceptance_gauge,
        names.acceptance_length_gauge, names.preemptions, names.started, names.deferred, names.awake, names.moving,
        names.moving_without_slots,
        tuple(f"{base}_{part}" for base in names.ttft for part in ("bucket", "sum", "count")),
        tuple(f"{base}_sum" for base in names.itl),
    )  # fmt: skip
    return frozenset(name for candidates in lists for name in candidates)


def reading_of(at: float, scrape: Scrape, names: MetricNames) -> Reading:
    scrape = scrape.without_copies(names.copies)
    ttft = scrape.first([f"{base}_bucket" for base in names.ttft])
    by_position = scrape.by(scrape.first(names.accepted_at), names.position_label)
    accepted_at = {int(key): value for key, value in by_position.items() if key.isdecimal()}
    counters = _counters(scrape, names, (ttft or "").removesuffix("_bucket"))
    if verified := _verified_drafts(scrape.finite(scrape.first(names.verified))):
        drafts, draft_tokens, accepted_at = verified
        accepted = sum(accepted_at.values())
        counters = counters._replace(drafts=drafts, draft_tokens=draft_tokens, accepted=accepted)
    return Reading(
        at=at,
        counters=counters,
        gauges=_gauges(scrape, names),
        accepted_at=accepted_at,
        ttft=_buckets(scrape.by(ttft, "le")),
        started=scrape.mean(scrape.first(names.started)),
        moving=tuple(scrape.total(name) for name in names.moving),
        moving_without_slots=tuple(scrape.total(name) for name in names.moving_without_slots),
    )


def _counters(scrape: Scrape, names: MetricNames, ttft: str) -> Counters:
    def total(candidates: tuple[str, ...], label: tuple[str, tuple[str, ...]] | None = None) -> float | None:
        return scrape.total(scrape.first(candidates), *(label or ()))

    hits = total(names.prefix_hits, names.prefix_hits_label)
    misses = total(names.prefix_misses, names.prefix_misses_label)
    return Counters(
        generated=total(names.generated, _one(names.generated_label)),
        prefilled=total(names.prefilled, _one(names.prefilled_label)),
        prompted=total(names.prompted),
        hits=hits,
        queries=hits + misses if hits is not None and misses is not None else total(names.prefix_queries),
        drafts=_drafts(scrape, names),
        draft_tokens=total(names.draft_tokens),
        accepted=total(names.accepted),
        ttft_sum=scrape.total(f"{ttft}_sum"),
        ttft_count=scrape.total(f"{ttft}_count"),
        preemptions=total(names.preemptions),
        timed_prompt=total(names.timed_prompt),
        prompt_s=total(names.prompt_seconds),
        decode_s=total(tuple(f"{base}_sum" for base in names.itl)),
    )


def _drafts(scrape: Scrape, names: MetricNames) -> float | None:
    """Count drafts of one or more tokens: only the first position has a token in each of them."""
    told = scrape.total(scrape.first(names.drafts))
    by_position = scrape.by(scrape.first(names.drafted_at), names.position_label)
    return max(by_position.values(), default=None) if told is None else told


def _one(label: tuple[str, str] | None) -> tuple[str, tuple[str, ...]] | None:
    return (label[0], (label[1],)) if label else None


def _gauges(scrape: Scrape, names: MetricNames) -> Gauges:
    capacity = scrape.total(scrape.first(names.kv_capacity))
    return Gauges(
        running=scrape.total(scrape.first(names.running)),
        waiting=scrape.total(scrape.first(names.waiting)),
        kv_used=scrape.mean(scrape.first(names.kv_used)),
        kv_capacity=_told_capacity(scrape, names) if capacity is None else capacity,
        decode=scrape.total(scrape.first(names.decode_gauge)),
        deferred=scrape.total(scrape.first(names.deferred), *(_one(names.deferred_label) or ())),
        awake=scrape.total(scrape.first(names.awake), *(_one(names.awake_label) or ())),
        acceptance=scrape.mean(scrape.first(names.acceptance_gauge)),
        acceptance_length=scrape.mean(scrape.first(names.acceptance_length_gauge)),
    )


def _told_capacity(scrape: Scrape, names: MetricNames) -> float | None:
    """Sum the capacity of an info series: one label set per data-parallel rank, each with a cache of its own."""
    sizes = [_size(labels) for labels in scrape.info(scrape.first(names.kv_info))]
    known = [size for size in sizes if size is not None]
    return float(sum(known)) if known and len(known) == len(sizes) else None


def _size(labels: dict[str, str]) -> int | None:
    size, blocks, block = (
        int(word) if word.isdecimal() else None
        for word in (labels.get(key, "") for key in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size"))
    )
    if size is None and blocks is not None and block is not None:
        return blocks * block  # vLLM before 0.24; too large for models with several kinds of cache
    return size


def _buckets(sums: dict[str, float]) -> dict[float, float]:
    bounds = {}
    for word, count in sums.items():
        try:
            bounds[float(word)] = count
        except ValueError:
            continue
    return {bound: bounds[bound] for bound in sorted(bounds) if not math.isnan(bound)}
