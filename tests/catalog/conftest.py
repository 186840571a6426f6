"""Folders of profile files."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from sparkdash import catalog
from sparkdash.catalog import Catalog
from sparkdash.catalog.importers.values import Imported

GOOD = """\
profile: tiny
about: a small one
engine: vllm
image: localhost/tiny
models:
  target: {path: /models/tiny}
serves: [small]
args: {max-model-len: 4096}
"""


def said(imported: Imported) -> str:
    """The report of an import."""
    return "\n".join(map(str, imported.remarks))


@pytest.fixture
def good() -> str:
    """The text of a file without problems; its family is `tiny`, its alias `small`."""
    return GOOD


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write files into a folder below the test's: `write(name=text)`; the folder is returned."""

    def folder(where: str = "profiles", **texts: str) -> Path:
        path = tmp_path / where
        path.mkdir(exist_ok=True)
        for name, text in texts.items():
            (path / f"{name}.yaml").write_text(dedent(text))
        return path

    return folder


@pytest.fixture
def told(write: Callable[..., Path]) -> Callable[[str], list[str]]:
    """The problems of one file's text, each as `line key: message. hint`."""

    def problems(text: str) -> list[str]:
        found = catalog.load_catalog([write(file=text)])
        return [str(p).split(":", 1)[1] if p.line else str(p).rsplit("/", 1)[-1] for p in found.problems]

    return problems


@pytest.fixture
def loaded(write: Callable[..., Path]) -> Callable[[str], Catalog]:
    def read(text: str) -> Catalog:
        found = catalog.load_catalog([write(file=text)])
        assert found.problems == ()
        return found

    return read
