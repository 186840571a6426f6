"""Imported profiles as readable YAML, tried out with the catalog's own loader before anyone sees it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from sparkdash.catalog.catalog import Catalog, Problem
from sparkdash.catalog.importers.report import Imported, Remark
from sparkdash.catalog.load import load

_WIDTH = 118
_SHORT = 90


def yaml_text(profile: dict[str, Any], imported: Imported, origin: str) -> str:
    """A profile file: where it comes from and what was not carried over as comments, then the profile."""
    head = [f"# Imported from {_line(origin)} (a {imported.form})."]
    if imported.remarks:
        head += [
            "#",
            "# What it does not say as its source did:",
            *(f"#   {_line(str(one))}" for one in imported.remarks),
        ]
    out = io.StringIO()
    writer = YAML()
    writer.width = _WIDTH
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.dump(_styled(profile), out)
    return "\n".join(head) + "\n" + out.getvalue()


def tried(texts: dict[str, str]) -> Catalog:
    """What the catalog makes of these files by themselves; its problems name them without their folder."""
    with TemporaryDirectory(prefix="sparkdash-import-") as folder:
        for name, text in texts.items():
            (Path(folder) / f"{name}.yaml").write_text(text, encoding="utf-8")
        found = load([Path(folder)])
        short = tuple(_short(problem, folder) for problem in found.problems)
    return Catalog(found.profiles, short)


def as_json(imported: Imported) -> dict[str, Any]:
    """The report for programs."""
    return {
        "form": imported.form,
        "profiles": list(imported.profiles),
        "remarks": [_remark(one) for one in imported.remarks],
    }


def _styled(value: Any, depth: int = 0) -> Any:
    """Short mappings and lists on one line, as people write them."""
    if not isinstance(value, dict | list):
        return value
    kept: CommentedMap | CommentedSeq
    if isinstance(value, dict):
        kept = CommentedMap((key, _styled(item, depth + 1)) for key, item in value.items())
    else:
        kept = CommentedSeq(_styled(item, depth + 1) for item in value)
    if depth > 0 and (depth > 1 or isinstance(value, list)) and len(str(value)) < _SHORT and not _nested(value):
        kept.fa.set_flow_style()
    return kept


def _nested(value: dict[str, Any] | list[Any]) -> bool:
    return any(isinstance(item, dict | list) for item in (value.values() if isinstance(value, dict) else value))


def _remark(one: Remark) -> dict[str, str]:
    return {"kind": one.kind, "what": one.what, "why": one.why}


def _short(problem: Problem, folder: str) -> Problem:
    return replace(problem, file=problem.file.removeprefix(f"{folder}/"))


def _line(text: str) -> str:
    return " ".join(text.split())
