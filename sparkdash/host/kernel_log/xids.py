"""Xid numbers of the NVIDIA driver: the meaning of each, and the advice.

Owns: the table. Must not know lines. Source: NVIDIA's list of Xid errors; notes on 8, 45, 154 and 169 from owners of
GB10 and other Blackwell devices.

Pure.
"""

from __future__ import annotations

_PROGRAM = "Start the engine again; if it comes back, try another build of the engine."
_RESET = "Reboot the box."

_KNOWN: dict[int, tuple[str, str]] = {
    8: ("a channel stood still", "With llama.cpp set GGML_CUDA_DISABLE_GRAPHS=1; otherwise start the engine again."),
    13: ("the engine's GPU program made a fault", _PROGRAM),
    31: ("the engine's GPU program read memory that is not there", _PROGRAM),
    43: ("the engine's GPU channel was stopped", _PROGRAM),
    45: ("clean-up after a program was ended", "Nothing: this follows each kill."),
    48: ("a memory error that could not be corrected", f"{_RESET} If it comes back, ask NVIDIA's support."),
    62: ("the GPU's own controller halted", _RESET),
    63: ("a faulty memory row is set aside", "Nothing now; a reboot completes it."),
    64: ("a faulty memory row could not be set aside", "Ask NVIDIA's support."),
    69: ("the engine's GPU program made a fault", _PROGRAM),
    74: ("a fault of an NVLink", _RESET),
    79: ("the GPU is off the bus", "Switch the box off at the plug for a minute, then on."),
    94: ("a memory error that one program alone met", _PROGRAM),
    95: ("a memory error that every program met", _RESET),
    109: ("a change between GPU programs did not end", _PROGRAM),
    119: ("the GPU's system processor (GSP) did not answer in time", _RESET),
    120: ("the GPU's system processor (GSP) made a fault", _RESET),
    154: ("the driver changed its recovery action", "The line says which: reset or reboot."),
    169: ("the driver's modules do not suit this GPU", "A GB10 needs the open kernel modules (nvidia-open)."),
}
_HARMLESS = frozenset({45, 63})


def meaning(number: int) -> str:
    """Word the meaning of an Xid."""
    return _KNOWN[number][0] if number in _KNOWN else "not in our list"


def advice(number: int) -> str:
    """Word the advice for an Xid."""
    return _KNOWN[number][1] if number in _KNOWN else "NVIDIA's list of Xid errors explains it."


def is_harmless(number: int) -> bool:
    """Whether an Xid belongs to normal work."""
    return number in _HARMLESS
