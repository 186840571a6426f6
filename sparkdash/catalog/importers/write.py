"""Imported profiles as readable YAML, validated by the catalog's own loader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sparkdash.catalog import yaml_writer
from sparkdash.catalog.catalog import Catalog, ProfileProblem
from sparkdash.catalog.importers.values import Imported, Remark
from sparkdash.catalog.load import load_catalog


def yaml_text(profile: dict[str, Any], imported: Imported, origin: str) -> str:
    """Render a profile file: origin and remarks as comments, then the profile."""
    head = [f"# Imported from {_line(origin)} (a {imported.form})."]
    if imported.remarks:
        head += [
            "#",
            "# What it does not say as its source did:",
            *(f"#   {_line(str(one))}" for one in imported.remarks),
        ]
    return "\n".join([*head, yaml_writer.dump(profile)])


def settings_text(imported: Imported) -> str:
    """Render the lines for config.toml as comments below the profiles; "" without any."""
    if not imported.settings:
        return ""
    return "\n".join(["# For config.toml:", *(f"#   {line}".rstrip() for line in imported.settings), ""])


def load_imported(texts: dict[str, str]) -> Catalog:
    """Load these files alone; problems name them without their folder."""
    with TemporaryDirectory(prefix="sparkdash-import-") as folder:
        for name, text in texts.items():
            (Path(folder) / f"{name}.yaml").write_text(text, encoding="utf-8")
        found = load_catalog([Path(folder)])
        short = tuple(_short(problem, folder) for problem in found.problems)
    return Catalog(found.profiles, short, found.places)


def import_report(imported: Imported) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "form": imported.form,
        "profiles": list(imported.profiles),
        "remarks": [_remark(one) for one in imported.remarks],
        "settings": list(imported.settings),
    }


def _remark(one: Remark) -> dict[str, str]:
    return {"kind": one.kind, "what": one.what, "why": one.why}


def _short(problem: ProfileProblem, folder: str) -> ProfileProblem:
    return replace(problem, file=problem.file.removeprefix(f"{folder}/"))


def _line(text: str) -> str:
    return " ".join(text.split())
