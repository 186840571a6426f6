"""Cap of the GPU's clock, through nvidia-smi.

Owns: the command lines, the rights that they need, the words of refusals. Must not know: who caps, for how long.
A cap is `nvidia-smi -lgc 0,MHZ`; `-rgc` lifts it. The driver does not report a cap, so one that the owner set by hand
is lifted as well. Rule: it never asks for a password (`sudo -n`).
"""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from sparkdash.errors import AdmissionError, HostError
from sparkdash.host.command import CommandResult, run_command

LIMIT_S = 10.0
"""Longest wait for one command; the driver takes a few milliseconds."""
_NO_RIGHT = ("permission", "password is required", "not allowed")
"""Words of nvidia-smi and sudo by which a right is missing."""


class GpuClock(Protocol):
    """Clock of this box's GPU. Every method raises HostError or AdmissionError where driver or rights refuse."""

    async def check(self, mhz: int) -> None:
        """Refuse a cap that would fail, as far as that can be known without setting it."""
        ...

    async def cap(self, mhz: int) -> None:
        """Hold the clock at or below `mhz`."""
        ...

    async def uncap(self) -> None:
        """Lift every cap."""
        ...


async def _run(argv: Sequence[str]) -> CommandResult:
    return await run_command(argv, deadline_s=LIMIT_S)


class NvidiaClock:
    """Clock of the first GPU. `run`, `program` and `uid` are replaced by tests only."""

    def __init__(
        self,
        run: Callable[[Sequence[str]], Awaitable[CommandResult]] = _run,
        *,
        program: str | None = None,
        uid: int | None = None,
    ) -> None:
        self._run = run
        self._program = program or shutil.which("nvidia-smi")
        self._root = (os.geteuid() if uid is None else uid) == 0

    async def check(self, mhz: int) -> None:
        """Refuse a box without nvidia-smi, a clock above the GPU's highest, and a user without the right."""
        highest = await self._highest()
        if highest is not None and mhz > highest:
            raise out_of_range(mhz, highest)
        if not self._root and (await self._started(("sudo", "-n", "-l", *self._words(mhz)))).code:
            raise self._not_permitted()

    async def cap(self, mhz: int) -> None:
        """Hold the clock at or below `mhz`."""
        await self._as_root(self._words(mhz))

    async def uncap(self) -> None:
        """Lift every cap."""
        await self._as_root((self._found(), "-rgc"))

    def _words(self, mhz: int) -> tuple[str, ...]:
        return (self._found(), "-lgc", f"0,{mhz}")

    def _found(self) -> str:
        if self._program is None:
            raise HostError("The GPU's clock cannot be capped: there is no nvidia-smi here.", code="clock_unsupported")
        return self._program

    async def _highest(self) -> int | None:
        """Return the GPU's highest clock in MHz; None where the driver does not report it."""
        query = ("--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits", "--id=0")
        told = await self._started((self._found(), *query))
        if told.code:
            raise HostError(
                f"The GPU's clock cannot be capped: nvidia-smi says {_words_of(told)!r}.", code="clock_unsupported"
            )
        return int(told.out) if told.out.strip().isdigit() else None

    async def _as_root(self, words: Sequence[str]) -> None:
        done = await self._started(words if self._root else ("sudo", "-n", *words))
        said = f"{done.out} {done.err}".lower()
        if any(word in said for word in _NO_RIGHT):
            raise self._not_permitted()
        if done.code or "not supported" in said:
            raise HostError(
                f"This driver does not cap the GPU's clock: nvidia-smi says {_words_of(done)!r}.",
                code="clock_unsupported",
            )

    async def _started(self, argv: Sequence[str]) -> CommandResult:
        try:
            return await self._run(argv)
        except TimeoutError as error:
            text = f"{argv[0]} did not answer within {LIMIT_S:.0f} s; the clock may or may not be capped."
            raise HostError(text, code="clock_silent") from error
        except OSError as error:
            raise HostError(f"{argv[0]} cannot be run: {error.strerror}.", code="clock_unsupported") from error

    def _not_permitted(self) -> HostError:
        return HostError(
            "The daemon's user may not cap the GPU's clock. Nothing was changed.",
            code="clock_not_permitted",
            hint=f"Add this line with `sudo visudo -f /etc/sudoers.d/sparkdash-clock`: {sudo_rule(self._found())}",
        )


def sudo_rule(program: str, user: str | None = None) -> str:
    """Compose the line for sudoers(5) that permits caps and their end, and no other nvidia-smi option."""
    return f"{user or getpass.getuser()} ALL=(root) NOPASSWD: {program} ^-lgc 0.[0-9]+$, {program} -rgc"


def out_of_range(mhz: int, highest: float) -> AdmissionError:
    """Return the refusal of a cap above the GPU's highest clock."""
    return AdmissionError(
        f"The GPU's highest clock is {highest:.0f} MHz; {mhz} MHz would cap nothing.", code="clock_out_of_range"
    )


def _words_of(done: CommandResult) -> str:
    return " ".join((done.err or done.out).split())[:200] or f"exit status {done.code}"
