"""The checks, by what they look at. Importing this fills the register, in the order in which findings are told."""

from sparkdash.doctor.checks import host, gpu, podman, cdi, rights, memory, contiguity, disks, network, own  # noqa: I001 - that order

__all__ = ["cdi", "contiguity", "disks", "gpu", "host", "memory", "network", "own", "podman", "rights"]
