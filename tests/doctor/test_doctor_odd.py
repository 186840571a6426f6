"""Files and answers whose shape nobody foresaw: told, and never a check that fails itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkdash.doctor import CHECKS, checks_named
from sparkdash.doctor import check as podman_info
from sparkdash.doctor.check import Readings, judge
from sparkdash.doctor.containers import SPECS
from sparkdash.domain.node import Status
from sparkdash.host.command import CommandResult

SPEC = "/etc/cdi/nvidia.yaml"
WORDS = (
    "cdiVersion", "kind", "devices", "name", "nvidia.com/gpu", "all", "0.5.0",
    "host", "store", "version", "Version", "graphRoot", "graphDriverName", "ociRuntime", "networkBackend", "4.9.3",
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(WORDS) | st.text()
SHAPES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner), max_leaves=8
)
SPECIFIC = st.fixed_dictionaries(
    {"cdiVersion": SHAPES, "kind": st.just("nvidia.com/gpu")}, optional={"devices": st.lists(SHAPES) | SHAPES}
)
READERS = [
    one
    for one in CHECKS.values()
    if podman_info.COMMAND in one.needs.get("runs", ()) or set(SPECS) & {*one.needs.get("reads", ())}
]


@pytest.mark.parametrize("devices", ["[all]", "all", "7", "[{name: all}, 3]", "{name: all}", "[{}]"])
async def test_a_spec_whose_devices_are_no_devices_is_no_spec(spark: Any, devices: str) -> None:
    """podman's reader refuses the whole file, and so does ours, in the same words as for any other text."""
    spark.write(SPEC, f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: {devices}\n")
    found = await spark.examine("cdi")
    assert found[0].status is Status.FAIL
    assert f"{SPEC} is no CDI spec" in found[0].evidence


@pytest.mark.parametrize("said", ['{"host": []}', '{"version": "4.9.3"}', '{"store": {"graphRoot": 7}}', "[]", "7"])
async def test_podman_may_answer_what_it_likes(spark: Any, said: str) -> None:
    """A word that it does not tell is unknown; the other checks go on."""
    spark.commands[podman_info.COMMAND] = CommandResult(0, said, "")
    found = await spark.examine()
    assert {one.name for one in found} == {one.name for one in checks_named(())}
    assert not [one for one in found if "The check itself failed" in one.evidence]


@given(spec=SPECIFIC | SHAPES, info=SHAPES, as_json=st.booleans())
@settings(max_examples=50)
def test_no_shape_of_a_spec_or_of_podman_s_answer_trips_a_check(spec: object, info: object, as_json: bool) -> None:
    text = json.dumps(spec) if as_json else yaml.safe_dump(spec)
    files = dict.fromkeys((path for one in READERS for path in one.needs.get("reads", ()) if "*" not in path), "") | {
        SPEC: text
    }
    names = {"graphroot": "/", "uid": "1000", "user": "lab", "home": "/home/lab", "hf_home": "/", "cache_dir": "/"}
    answers = dict.fromkeys(
        (argv for one in READERS for argv in one.needs.get("runs", ())), CommandResult(0, json.dumps(info), "")
    )
    readings = Readings(
        uid=1000, names=names, files={p.format_map(names): t for p, t in files.items()}, commands=answers
    )
    failed = [f.evidence for f in judge(readings, READERS) if "The check itself failed" in f.evidence]
    assert not failed, failed
