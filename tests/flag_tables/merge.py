"""One table of several versions: each fact with the versions in which it held, so that what never changes is said once.

A span is `since:until`, either side empty where it holds from the first or to the last version; `until` is the first
version without it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.flag_tables.observed import Observed

Table = dict[str, Any]


def merged(versions: Mapping[str, Sequence[Observed]], instead: Mapping[str, str]) -> list[Table]:
    """Rows of the table, by name. `versions` is in order, oldest first."""
    order = list(versions)
    groups = _groups(versions)
    rows = []
    for seen in groups:
        names = _timed({v: one.names for v, one in seen.items()}, order, within=order)
        here = [v for v in order if v in seen]
        row: Table = {"names": names}
        for key in ("takes", "type", "folds", "low", "above", "high", "below", "state"):
            values = {v: one.facts().get(key) for v, one in seen.items()}
            if (found := _one(values, here)) is not None:
                row[key] = found
        for key in ("choices", "keys"):
            listed = {v: getattr(one, key) for v, one in seen.items() if getattr(one, key)}
            if listed:
                row[key] = _timed(listed, here, within=[v for v in here if v in listed])
                if len(listed) < len(here):
                    row[f"{key}_of"] = _spans([v in listed for v in here], here)
        for name in next(reversed(seen.values())).names:
            if name.lstrip("-") in instead:
                row["instead"] = instead[name.lstrip("-")]
        rows.append(row)
    return sorted(rows, key=lambda row: row["names"][0].lstrip("-"))


def dumped(engine: str, source: str, order: Sequence[str], rows: Sequence[Table]) -> str:
    head = json.dumps({"engine": engine, "source": source, "versions": list(order)})[1:-1]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f'{{{head}, "flags": [\n{lines}\n]}}\n'


def _groups(versions: Mapping[str, Sequence[Observed]]) -> list[dict[str, Observed]]:
    """Definitions of one flag over the versions, found by its long names."""
    home: dict[str, dict[str, Observed]] = {}
    groups: list[dict[str, Observed]] = []
    for version in reversed(versions):  # the newest names win where an old one went elsewhere
        for one in versions[version]:
            long = [name for name in one.names if name.startswith("--")] or one.names
            group = next((home[name] for name in long if name in home and version not in home[name]), None)
            if group is None:
                twin = next((home[name] for name in long if name in home and version in home[name]), None)
                if twin is not None:
                    twin[version].names = list(dict.fromkeys([*twin[version].names, *one.names]))
                    continue
                group = {}
                groups.append(group)
            group[version] = one
            home |= {name: group for name in long if name not in home}
    return [{v: group[v] for v in versions if v in group} for group in groups]


def _timed(listed: Mapping[str, Sequence[str]], order: Sequence[str], within: Sequence[str]) -> list[str]:
    newest_first = dict.fromkeys(value for v in reversed(within) for value in listed.get(v, ()))
    made = []
    for value in newest_first:
        span = _spans([value in listed.get(v, ()) for v in within], within)
        made.append(f"{value}@{span}" if span else value)
    return made


def _one(values: Mapping[str, Any], here: Sequence[str]) -> Any:
    """A single value, or each value with its spans."""
    found = [values[v] for v in here]
    if all(value == found[0] for value in found):
        return found[0]
    return {
        str(value): _spans([one == value for one in found], here)
        for value in dict.fromkeys(found) if value is not None
    }  # fmt: skip


def _spans(present: Sequence[bool], order: Sequence[str]) -> str:
    """`""` for all of them, else `since:until` for each run, with commas."""
    if all(present):
        return ""
    runs, index = [], 0
    while index < len(order):
        if not present[index]:
            index += 1
            continue
        end = index
        while end < len(order) and present[end]:
            end += 1
        runs.append(f"{order[index] if index else ''}:{order[end] if end < len(order) else ''}")
        index = end
    return ",".join(runs)
