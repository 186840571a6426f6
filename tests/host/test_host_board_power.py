"""Power of the whole box, where a kernel module reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.domain.metric import Gpu
from sparkdash.host.box import AGAIN_S, BoardPower
from sparkdash.telemetry.energy import Power
from sparkdash.telemetry.joins import total_power


def sensor(folder: Path, label: str, microwatts: int) -> Path:
    at = folder / "hwmon3"
    at.mkdir(exist_ok=True)
    (at / "power1_label").write_text(f"{label}\n")
    (at / "power1_input").write_text(f"{microwatts}\n")
    return at / "power1_input"


def test_the_boards_sensor_is_found_by_its_label(tmp_path: Path) -> None:
    sensor(tmp_path, "sys_total", 98_400_000)
    assert BoardPower(tmp_path).read() == pytest.approx(98.4)


def test_other_sensors_are_not_the_boards(tmp_path: Path) -> None:
    sensor(tmp_path, "pl1", 140_000_000)
    assert BoardPower(tmp_path).read() is None


def test_a_module_that_is_loaded_later_is_found_and_one_that_goes_is_missed(tmp_path: Path) -> None:
    now = 0.0
    power = BoardPower(tmp_path, lambda: now)
    assert power.read() is None
    file = sensor(tmp_path, "sys_total", 50_000_000)
    assert power.read() is None, "a search a minute would be one too many"
    now = AGAIN_S
    assert power.read() == pytest.approx(50.0)
    file.unlink()
    assert power.read() is None


@pytest.mark.parametrize(
    ("gpu", "others", "power"),
    [
        (None, (), None),
        (Gpu(), (), None),
        (Gpu(power_w=62.0), (), Power(62.0, "GPU only")),
        (Gpu(power_w=62.0, board_power_w=98.0), (), Power(98.0, "whole box")),
        (Gpu(power_w=62.0), (Gpu(power_w=64.0),), Power(126.0, "GPU only, 2 boxes")),
        (Gpu(power_w=62.0, board_power_w=98.0), (Gpu(power_w=64.0),), Power(126.0, "GPU only, 2 boxes")),
        (Gpu(power_w=62.0), (None, Gpu()), Power(62.0, "GPU only")),
    ],
)
def test_the_sensor_of_the_power_is_named(gpu: Gpu | None, others: tuple[Gpu | None, ...], power: Power | None) -> None:
    """One kind of sensor for all boxes, so that the sum means something."""
    assert total_power(gpu, others) == power
