"""Merge of settings into a client's file, with the owner's own content preserved.

Rule: the result is parsed again, and must hold exactly the old content plus the new settings; else it is refused. Pure.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from sparkdash.connect.recipe import ConfigFile, FileFormat
from sparkdash.errors import AdmissionError
from sparkdash.settings import parse_toml

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"({_STRING})|({_COMMENT})", re.DOTALL)
_TRAILING = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)


def parse_jsonc(text: str) -> Any:
    try:
        return json.loads(_TRAILING.sub(lambda found: found[1] or "", _blank(text)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_plain(text: str) -> bool:
    """Whether the text is plain JSON, so that rewriting it loses nothing."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _blank(text: str) -> str:
    """Blank comments with spaces, so that every other character keeps its position."""
    return _TOKEN.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[2]), text)


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def render_content(content: Mapping[str, Any] | Sequence[Any], form: FileFormat) -> str:
    match form:
        case FileFormat.JSON:
            return as_json(content)
        case FileFormat.YAML:
            return as_yaml(content)
        case FileFormat.TOML:
            if not isinstance(content, Mapping):
                raise TypeError("a TOML file is a table")
            return as_toml(content)


def as_json(content: object, indent: str | int = 2) -> str:
    return json.dumps(content, indent=indent, ensure_ascii=False) + "\n"


def as_yaml(content: object) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return text


def as_toml(content: Mapping[str, Any], table: tuple[str, ...] = ()) -> str:
    """Render TOML of strings, numbers, booleans and tables. Values precede tables, as TOML requires."""
    values = {key: value for key, value in content.items() if not isinstance(value, Mapping)}
    lines = [f"[{'.'.join(map(_key, table))}]"] if table and values else []
    lines += [f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    inner = [as_toml(value, (*table, key)) for key, value in content.items() if isinstance(value, Mapping)]
    return "\n".join(("\n".join(lines) + "\n" if lines else "", *inner) if lines else inner)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def merge_file(old: str, file: ConfigFile) -> str:
    """Return the file's new text; the old one where it holds all settings. Raises AdmissionError `merge_refused`."""
    if not old.strip():
        return render_content(merge_values(file.seed, file.content, file.same), file.format)
    before = _read(old, file)
    wanted = merge_values(before, file.content, file.same)
    if wanted == before:
        return old
    candidates = {FileFormat.JSON: _json, FileFormat.TOML: _toml, FileFormat.YAML: _yaml}[file.format]
    for candidate in candidates(old, before, wanted, file):
        if _holds(candidate, wanted, file):
            return candidate
    raise _refused("it has comments, or is laid out in a way, that would be lost", file)


def merge_values(before: Any, more: Any, same: str) -> Any:
    """Merge `more` into `before`: tables key by key, list items by equality of the key `same`."""
    if isinstance(before, Mapping) and isinstance(more, Mapping):
        both = {key: merge_values(before[key], value, same) if key in before else value for key, value in more.items()}
        return {**before, **both}
    if _is_list(before) and _is_list(more):
        return _merge_lists(before, more, same)
    return more


def _merge_lists(before: Sequence[Any], more: Sequence[Any], same: str) -> list[Any]:
    items = list(before)
    for each in more:
        at = next((i for i, item in enumerate(items) if _agree(item, each, same)), None)
        if at is None:
            items.append(each)
        else:
            items[at] = merge_values(items[at], each, same)
    return items


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _agree(one: Any, other: Any, same: str) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping) and same in one and same in other:
        return bool(one[same] == other[same])
    return bool(one == other)


def _read(old: str, file: ConfigFile) -> Any:
    try:
        found = _parsed(old, file.format)
    except (ValueError, yaml.YAMLError) as error:
        raise _refused(f"it cannot be read ({str(error).splitlines()[0]})", file) from None
    if found is None:  # a YAML file with nothing but comments
        return type(file.content)()
    if _is_list(found) != _is_list(file.content):
        raise _refused("it holds something else", file)
    return found


def _parsed(old: str, form: FileFormat) -> Any:
    match form:
        case FileFormat.JSON:
            return parse_jsonc(old)
        case FileFormat.TOML:
            return parse_toml(old)
        case FileFormat.YAML:
            from sparkdash.catalog import yaml12

            yaml12.read_yaml(old)  # refuses aliases that multiply, which a comparison would write out
            return yaml.safe_load(old)


def _holds(candidate: str, wanted: Any, file: ConfigFile) -> bool:
    try:
        return bool(_parsed(candidate, file.format) == wanted)
    except (ValueError, yaml.YAMLError):
        return False


def _json(old: str, before: Any, wanted: Any, _file: ConfigFile) -> Iterator[str]:
    indent = re.search(r"^([ \t]+)\S", old, re.MULTILINE)
    width = indent[1] if indent else "  "
    if is_plain(old):
        yield as_json(wanted, width)
    elif isinstance(wanted, Mapping) and all(wanted[key] == value for key, value in before.items()):
        new = {key: value for key, value in wanted.items() if key not in before}
        body = json.dumps(new, indent=width, ensure_ascii=False)[1:].rstrip("}").rstrip()
        at = _blank(old).index("{") + 1
        yield old[:at] + body + ("," if before else "") + old[at:]


def _toml(old: str, _before: Any, wanted: Any, file: ConfigFile) -> Iterator[str]:
    if wanted == file.content and "#" not in old:
        yield render_content(file.content, file.format)


def _yaml(old: str, before: Any, wanted: Any, _file: ConfigFile) -> Iterator[str]:
    ended = old if old.endswith("\n") else old + "\n"
    if _is_list(wanted):
        yield ended + as_yaml(wanted[len(before) :])
        return
    lines = ended
    for key, value in wanted.items():
        if key not in before:
            lines += as_yaml({key: value})
        elif value != before[key]:
            lines = _edited(lines, key, before[key], value)
    yield lines


def _edited(lines: str, key: str, old: Any, new: Any) -> str:
    if _is_list(new):
        return _longer(lines, key, new[len(old) :]) if len(new) > len(old) else lines
    return lines if isinstance(new, Mapping) else _changed(lines, key, new)


def _longer(old: str, key: str, items: list[Any]) -> str:
    found = re.search(rf"^{re.escape(key)}:[ \t]*(#.*)?\n((?:[ \t]*(?:#.*)?\n|[ \t]+.*\n|-.*\n)*)", old, re.MULTILINE)
    if found is None:
        return old
    block = found[2].rstrip("\n")
    dash = re.search(r"^([ \t]*)- ", block, re.MULTILINE)
    indent = dash[1] if dash else "  "
    added = "".join(f"{indent}{line}\n" for line in as_yaml(items).splitlines())
    end = found.start(2) + len(block)
    return old[:end] + ("\n" if block else "") + added.rstrip("\n") + old[end:]


def _changed(old: str, key: str, value: object) -> str:
    """Replace a top-level scalar; only where the line has no comment."""
    line = as_yaml({key: value}).rstrip("\n")
    return re.sub(rf"^{re.escape(key)}:[ \t]*[^#\n]*$", lambda _: line, old, count=1, flags=re.MULTILINE)


def _refused(why: str, file: ConfigFile) -> AdmissionError:
    return AdmissionError(
        f"{file.path or 'The file'} is left as it is: {why}.",
        code="merge_refused",
        hint="Put in by hand what `sparkdash connect` prints without --write.",
    )
