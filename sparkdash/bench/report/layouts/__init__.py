"""Report layouts, shipped with sparkdash or read from a file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import ValidationError

from sparkdash.bench.report.layout import Layout
from sparkdash.errors import AdmissionError


def shipped_layouts() -> tuple[str, ...]:
    """Return the names for --layout."""
    return tuple(
        sorted(one.name.removesuffix(".yaml") for one in files(__package__).iterdir() if one.name.endswith(".yaml"))
    )


def load_layout(name: str) -> Layout:
    """Load a layout by its name, or from a YAML file.

    Raises:
        AdmissionError: `layout_not_found`, `layout_invalid`.
    """
    if name in shipped_layouts():
        return _read(files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8"), name)
    try:
        return _read(Path(name).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError):
        raise AdmissionError(
            f"There is no layout {name}.",
            code="layout_not_found",
            status=404,
            hint=f"There are {', '.join(shipped_layouts())}; or give a YAML file of the same shape.",
        ) from None


def _read(text: str, name: str) -> Layout:
    try:
        return Layout.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise AdmissionError(f"{name} is not YAML: {str(error).splitlines()[0]}.", code="layout_invalid") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise AdmissionError(
            f"{name} is not a layout: {where or 'the file'}: {first['msg']}.",
            code="layout_invalid",
            hint="`sparkdash/bench/report/layouts/qwen3-coder.yaml` shows the shape.",
        ) from None
