"""Checks by subject. Importing this package fills the register, in the order of the report.

Pure.
"""

from sparkdash.doctor.checks import (  # noqa: I001 - that order
    host,
    gpu,
    podman,
    cdi,
    rights,
    memory,
    memory_holders,
    memory_helper,
    contiguity,
    kernel_log,
    disks,
    network,
    own,
)

__all__ = [
    "cdi",
    "contiguity",
    "disks",
    "gpu",
    "host",
    "kernel_log",
    "memory",
    "memory_helper",
    "memory_holders",
    "network",
    "own",
    "podman",
    "rights",
]
