"""The GPU's clock is capped through nvidia-smi, or it is said at once why not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparkdash.errors import SparkdashError
from sparkdash.host.command import CommandResult
from sparkdash.host.gpu_clock import NvidiaClock, sudo_rule

SMI = "/usr/bin/nvidia-smi"
FREED = CommandResult(0, "All done.\n", "")
HIGHEST = CommandResult(0, "3003\n", "")


class Programs:
    """Answers by the words of a command line, and remembers what was run."""

    def __init__(self, **answers: CommandResult | Exception) -> None:
        self.ran: list[tuple[str, ...]] = []
        self._answers: dict[str, CommandResult | Exception] = {"--query-gpu=clocks.max.sm": HIGHEST, **answers}

    async def __call__(self, argv: Sequence[str]) -> CommandResult:
        self.ran.append(tuple(argv))
        found = next((each for word, each in self._answers.items() if word in argv), FREED)
        if isinstance(found, Exception):
            raise found
        return found


async def refused(clock: NvidiaClock, call: str, *args: int) -> SparkdashError:
    with pytest.raises(SparkdashError) as caught:
        await getattr(clock, call)(*args)
    return caught.value


async def test_root_caps_and_frees_the_clock() -> None:
    """From zero up to the cap, so that an idle GPU still rests."""
    programs = Programs()
    clock = NvidiaClock(programs, program=SMI, uid=0)
    await clock.check(1400)
    await clock.cap(1400)
    await clock.uncap()
    assert programs.ran[1:] == [(SMI, "-lgc", "0,1400"), (SMI, "-rgc")]


async def test_another_user_goes_through_sudo_without_a_password() -> None:
    """Whether the rule is there is asked before, by a command that runs nothing."""
    programs = Programs()
    clock = NvidiaClock(programs, program=SMI, uid=1000)
    await clock.check(1400)
    assert programs.ran[1:] == [("sudo", "-n", "-l", SMI, "-lgc", "0,1400")]
    await clock.cap(1400)
    await clock.uncap()
    assert programs.ran[2:] == [("sudo", "-n", SMI, "-lgc", "0,1400"), ("sudo", "-n", SMI, "-rgc")]


async def test_without_the_right_the_rule_to_add_is_named() -> None:
    """Sudo asks for a password, or nvidia-smi itself refuses."""
    sudo = Programs(**{"-l": CommandResult(1, "", "sudo: a password is required")})
    found = await refused(NvidiaClock(sudo, program=SMI, uid=1000), "check", 1400)
    assert (found.code, found.hint) == ("clock_not_permitted", found.hint)
    assert sudo_rule(SMI) in str(found.hint)
    driver = Programs(**{"-lgc": CommandResult(4, "The current user does not have permission to change clocks", "")})
    assert (await refused(NvidiaClock(driver, program=SMI, uid=0), "cap", 1400)).code == "clock_not_permitted"


async def test_a_driver_that_does_not_cap_is_named_with_its_words() -> None:
    """Also one that ends with success after saying so."""
    for code in (0, 3):
        words = "Setting locked GPU clocks is not supported for GPU 0000000F:01:00.0."
        clock = NvidiaClock(Programs(**{"-lgc": CommandResult(code, words, "")}), program=SMI, uid=0)
        found = await refused(clock, "cap", 1400)
        assert found.code == "clock_unsupported"
        assert "not supported for GPU" in found.message


async def test_a_box_without_the_program_or_a_driver_cannot_cap() -> None:
    """Nothing was asked of sudo."""
    found = await refused(NvidiaClock(Programs(), program=None, uid=0), "check", 1400)
    assert "no nvidia-smi" in found.message
    gone = Programs(**{"--query-gpu=clocks.max.sm": CommandResult(9, "", "couldn't communicate with the driver")})
    assert "communicate" in (await refused(NvidiaClock(gone, program=SMI, uid=1000), "check", 1400)).message
    assert len(gone.ran) == 1


async def test_a_clock_above_the_highest_is_refused() -> None:
    """It would cap nothing. A driver that does not name its highest is not second-guessed."""
    found = await refused(NvidiaClock(Programs(), program=SMI, uid=0), "check", 3100)
    assert (found.code, "3003 MHz" in found.message) == ("clock_out_of_range", True)
    silent = Programs(**{"--query-gpu=clocks.max.sm": CommandResult(0, "[N/A]\n", "")})
    await NvidiaClock(silent, program=SMI, uid=0).check(3100)


async def test_a_driver_that_hangs_leaves_the_cap_in_doubt() -> None:
    """The clock may be capped by then, so its end stays owed."""
    clock = NvidiaClock(Programs(**{"-lgc": TimeoutError()}), program=SMI, uid=0)
    assert (await refused(clock, "cap", 1400)).code == "clock_silent"


def test_the_rule_permits_a_cap_and_its_end_alone() -> None:
    """An asterisk would permit every further option, a reset of the GPU among them."""
    assert sudo_rule(SMI, "ann") == f"ann ALL=(root) NOPASSWD: {SMI} ^-lgc 0.[0-9]+$, {SMI} -rgc"
