"""The bench's rehearsal of a run (`tests/bench/conftest.py`), for tests of other rooms."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def rehearsal() -> ModuleType:
    name = "bench_rehearsal"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "bench" / "conftest.py")
        assert spec
        assert spec.loader
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]
