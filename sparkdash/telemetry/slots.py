"""llama.cpp's /slots: live token counts, which its counters show only at the end of a request.

Only numbers are kept: older builds put prompts into the answer.

Pure.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple


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

    def idle(self) -> Slots:
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
        {slot.task: slot for slot in busy},
        None if None in contexts else sum(tokens or 0 for tokens in contexts),
    )


def _rows(body: bytes | str) -> list[dict[str, Any]] | None:
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError):
        return None
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
