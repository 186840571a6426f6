"""Replicas: which of several engines of one profile serves a conversation.

A conversation stays where its prefix is cached. A new one goes to the least busy replica that has no more than its
share of them; of equals to the one that comes first in its own order of them (rendezvous hashing). Pure.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import ceil, floor
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import SchemaValidator, core_schema

BUSIER = 4
"""Running requests more than the least busy replica has, beyond which a conversation leaves its own for that one."""
REMEMBERED = 4096
"""Conversations whose replica is remembered, the last used ones."""
SHARE = 1.25
"""Conversations of one replica over the mean, at most: plain hashing gave one of four replicas 7 of 20, or up to 12."""

_ANYTHING = core_schema.typed_dict_field(core_schema.any_schema(), required=False)
_ASKED = SchemaValidator(
    core_schema.typed_dict_schema(
        dict.fromkeys(("prompt_cache_key", "system", "instructions", "messages", "input", "prompt"), _ANYTHING)
    )
)


def conversation_in(body: bytes) -> str | None:
    """Return what names the conversation of a body: its key, else how it begins; None where it tells nothing."""
    try:
        asked: dict[str, Any] = _ASKED.validate_json(body)
    except ValidationError:
        return None
    if key := asked.pop("prompt_cache_key", None):
        return str(key)
    for name in ("messages", "input"):
        if isinstance(turns := asked.get(name), list):
            asked[name] = _until_first_question(turns)
    return json.dumps(asked) if any(asked.values()) else None


def _until_first_question(turns: list[Any]) -> list[Any]:
    """Return the turns up to the first of the user; all of what has none, such as texts to embed."""
    at = (number for number, turn in enumerate(turns, 1) if isinstance(turn, dict) and turn.get("role") == "user")
    return turns[: next(at, len(turns))]


class ReplicaChoice:
    """Remembers the replica of each conversation; `running` counts each replica's requests, by whoever sends them."""

    def __init__(self, homes: Mapping[str, str] = MappingProxyType({})) -> None:
        """`homes`: those of an earlier life; hashing alone found half of 20 again on four replicas."""
        self.running: Counter[str] = Counter()
        self.start_at: dict[str, float] = {}
        """Time from which absent replicas may be asked to come again, by profile."""
        self.homes = OrderedDict(homes)
        """Replica of each conversation by its digest, the last used one at the end."""
        self._kept = Counter(self.homes.values())
        """Conversations of each replica."""

    def choose(self, conversation: str, replicas: Sequence[str]) -> str:
        """Choose among the replicas that can serve now."""
        key = blake2b(conversation.encode("utf-8", "replace"), digest_size=16).hexdigest()
        old = self.homes.pop(key, None)
        if old is not None:
            self._kept[old] -= 1
        home = self._placed(key, replicas) if old is None or old not in replicas else self._least(old, replicas)
        self.homes[key] = home
        self._kept[home] += 1
        if len(self.homes) > REMEMBERED:
            self._kept[self.homes.popitem(last=False)[1]] -= 1
        return home

    def _least(self, home: str, replicas: Sequence[str]) -> str:
        """Return the least busy one; `home` unless it is too busy beside it."""
        least = min(replicas, key=self.running.__getitem__)
        return least if self.running[home] > self.running[least] + BUSIER else home

    def _placed(self, key: str, replicas: Sequence[str]) -> str:
        """Place a new conversation: with the least busy of those that have no more than their share of them."""
        mean = (sum(map(self._kept.__getitem__, replicas)) + 1) / len(replicas)
        most = max(ceil(mean), floor(SHARE * mean))
        free = [name for name in replicas if self._kept[name] < most]
        return min(free, key=lambda name: (self.running[name], blake2b(name.encode(), key=key.encode()).digest()))
