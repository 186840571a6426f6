"""What engines' programs list in their `--help`: who is asked, when, and what a start makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.known_flags import FEWEST
from sparkdash.host.flag_store import FlagStore

REST = "\n".join(f"--flag-{number} N" for number in range(FEWEST))
NEW = f"-h, --help\n--load-mode MODE\n{REST}"
OLD = f"-h, --help\n--no-mmap\n{REST}"
LLAMA: dict[str, Any] = {"engine": EngineKind.LLAMACPP}


@pytest.fixture
def flags(tmp_path: Path) -> FlagStore:
    return FlagStore(tmp_path / "flags")


def said(house: Any, profile: str) -> str:
    """The command line that this profile's engine was started with."""
    return " ".join(house.runtime.of(profile).spec.argv)


@pytest.mark.parametrize(("help_", "flag"), [(NEW, "--load-mode none"), (OLD, "--no-mmap")])
async def test_a_start_asks_a_quick_program_once(
    house: Any, make_profile: Any, flags: FlagStore, help_: str, flag: str
) -> None:
    """The first start asks it; later ones, and those of later daemons, know. Its flags decide the command line."""
    house.runtime.help = help_
    await house.open(make_profile("a", **LLAMA), make_profile("b", **LLAMA), flags=flags)
    await house.leased("a")
    assert said(house, "a").endswith(f"--metrics {flag}")
    await house.leased("b")
    assert said(house, "b").endswith(f"--metrics {flag}")
    await house.close()
    house.runtime.help = None
    await house.open(make_profile("a", **LLAMA), flags=flags)
    await house.leased("a")
    assert said(house, "a").endswith(f"--metrics {flag}")
    assert house.runtime.asked == ["llama-server --help"]


@pytest.mark.parametrize("help_", ["", "Traceback (most recent call last):"])
async def test_a_program_that_prints_rubbish_is_not_known_and_starts(
    house: Any, make_profile: Any, flags: FlagStore, help_: str
) -> None:
    """It is asked once in a daemon's life, and told by variables, which it passes over if it does not know them."""
    house.runtime.help = help_
    await house.open(make_profile("a", **LLAMA), make_profile("b", **LLAMA), flags=flags)
    for name in ("a", "b"):
        await house.leased(name)
        assert said(house, name).endswith("--metrics")
        assert house.runtime.of(name).spec.env["LLAMA_ARG_LOAD_MODE"] == "none"
    assert house.runtime.asked == ["llama-server --help"]
    assert house.notices() == []


async def test_a_quick_program_that_hangs_holds_up_one_start_only(
    house: Any, make_profile: Any, flags: FlagStore
) -> None:
    """For five seconds; the next ones begin at once. It is asked again, with more patience, when the box is quiet."""
    house.runtime.help = None
    await house.open(make_profile("a", **LLAMA), make_profile("b", **LLAMA), flags=flags)
    for name in ("a", "b"):
        await house.leased(name)
        assert said(house, name).endswith("--metrics")
    assert house.runtime.asked == ["llama-server --help"]
    house.runtime.help = NEW
    while flags.of(make_profile("b", **LLAMA), containerised=True) is None:
        house.clock.step()
        await house.clock.rest()
    await house.leased("a")
    assert said(house, "a").endswith("--metrics --load-mode none")


async def test_a_start_names_flags_that_its_program_does_not_list(
    house: Any, make_profile: Any, flags: FlagStore
) -> None:
    """Once, with what may have been meant; it is tried all the same, as a help text may leave flags out."""
    house.runtime.help = NEW
    await house.open(make_profile("a", args={"mlock": True, "fleg-1": 2}, **LLAMA), make_profile("b"), flags=flags)
    for name in ("a", "b", "a"):
        await house.leased(name)
    assert [notice.text for notice in house.notices() if notice.code == "flag_not_listed"] == [
        "a: `--help` of llama-server in image does not list --mlock. Write `load-mode: mlock` instead, or remove it.",
        "a: `--help` of llama-server in image does not list --fleg-1. Write `flag-1` instead, or remove it.",
    ]


async def test_a_slow_program_is_asked_once_the_box_is_quiet(house: Any, make_profile: Any, flags: FlagStore) -> None:
    """No start waits for it; the one after knows. An image that is not here is not asked for, nor is a wrapper."""
    house.runtime.help = f"  -h, --help\n  --disable-access-log-for-endpoints X\n{REST}"
    absent = make_profile("absent", image="elsewhere")
    wrapped = make_profile("wrapped", command=("bash", "/serve.sh"))
    await house.open(make_profile("a"), make_profile("b"), absent, wrapped, flags=flags)
    await house.leased("a")
    assert "--disable-access-log-for-endpoints" not in said(house, "a")
    asking = house.ask("a")
    await house.clock.drive(asking.granted())
    for _ in range(20):
        house.clock.step()
        await house.clock.rest()
    assert house.runtime.asked == []
    await asking.leave()
    while flags.of(make_profile("b"), containerised=True) is None:
        house.clock.step()
        await house.clock.rest()
    await house.leased("b")
    assert "--disable-access-log-for-endpoints" in said(house, "b")
    assert house.runtime.asked == ["vllm serve --help=all"]


async def test_a_start_ends_the_asking_of_a_slow_program(house: Any, make_profile: Any, flags: FlagStore) -> None:
    """It hangs, and the start does not wait for it; when the box is quiet again so is it asked again."""
    house.runtime.help = None
    await house.open(make_profile("a"), flags=flags)
    while not house.runtime.asked:
        house.clock.step()
        await house.clock.rest()
    await house.leased("a")
    house.runtime.help = NEW
    while len(house.runtime.asked) < 2:
        house.clock.step()
        await house.clock.rest()
    assert house.runtime.asked == ["vllm serve --help=all"] * 2


async def test_a_box_short_of_memory_asks_no_slow_program(house: Any, make_profile: Any, flags: FlagStore) -> None:
    """It takes a gigabyte beside what is resident."""
    await house.open(make_profile("a", gib=108), flags=flags)
    await house.leased("a")
    for _ in range(40):
        house.clock.step()
        await house.clock.rest()
    assert house.runtime.asked == []


async def test_no_program_is_asked_with_a_secret_of_a_profile_that_is_not_started(
    house: Any, make_profile: Any, flags: FlagStore
) -> None:
    """Its command line would show to others what the refusal of the start keeps from them."""
    secret = make_profile("a", env={"PLACE": "hf_" + "x" * 30})
    await house.open(secret, flags=flags)
    for _ in range(40):
        house.clock.step()
        await house.clock.rest()
    assert house.runtime.asked == []
