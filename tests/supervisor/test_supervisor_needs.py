"""Which source of a need is believed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog.checkpoint import weights
from sparkdash.domain.memory import Basis, Footprint, Measure
from sparkdash.domain.profile import ModelRef
from sparkdash.supervisor.state.needs import Needs
from sparkdash.units import GIB


def model(folder: Path) -> ModelRef:
    """A model of one tensor of 2 MiB."""
    head = json.dumps({"w": {"dtype": "BF16", "shape": [1024, 1024], "data_offsets": [0, 2097152]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(2097152))
    (folder / "config.json").write_text("{}")
    return ModelRef(path=str(folder))


async def test_what_was_learned_goes_before_the_estimate_and_that_knows_the_weights_once_they_are_read(
    make_profile: Any, tmp_path: Path
) -> None:
    """Asking never reads a file; a launch that was measured needs no reading."""
    learned: dict[str, Footprint] = {}
    needs = Needs(learned.get, tmp_path, lambda: 128 * GIB)
    profile = make_profile("a", gib=None, models={"target": model(tmp_path)}, args={"kv-cache-memory-bytes": "1G"})
    before = {term.name: term.bytes for term in needs(profile).terms}
    assert (needs(profile).basis, before["weights"], needs.target(profile)) == (Basis.UNKNOWN, None, None)
    await needs.read([profile])
    after = {term.name: term.bytes for term in needs(profile).terms}
    assert (needs(profile).basis, after["weights"]) == (Basis.ESTIMATED, 2097152)
    assert (target := needs.target(profile)) is not None
    assert (target.bytes.total, target.sees) == (2097152, False)
    learned[profile.fingerprint] = Footprint(
        loads=1, steady_bytes=3 * GIB, peak_bytes=4 * GIB, at=0.0, measure=Measure.AVAILABLE
    )
    assert (needs(profile).basis, needs(profile).room_bytes) == (Basis.LEARNED, 4 * GIB)


async def test_weights_that_break_the_reader_are_not_known_and_harm_nobody(
    make_profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reading is a help, not a condition."""

    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(weights, "read_profile_weights", broken)
    needs = Needs(lambda _: None, tmp_path, lambda: None)
    profile = make_profile("a", gib=None)
    await needs.read([profile])
    assert needs(profile).total_bytes is None


async def test_the_ceiling_of_a_launch_is_known_once_its_weights_are_read(make_profile: Any, tmp_path: Path) -> None:
    """2 MiB a step at 273 GB/s; states and keys are none at an empty context."""
    needs = Needs(lambda _: None, tmp_path, lambda: 128 * GIB)
    profile = make_profile("a", gib=None, models={"target": model(tmp_path)})
    shape = {"num_hidden_layers": 1, "num_attention_heads": 8, "hidden_size": 1024}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    assert needs.most_steps_s(profile) is None
    await needs.read([profile])
    assert needs.most_steps_s(profile) == pytest.approx(273e9 / 2097152)
