"""Bandwidths of an all-reduce, by the formulas of NCCL's own tests.

Owns: the formulas. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md: algorithm bandwidth is size / time; the bus bandwidth
of an all-reduce over n ranks is that times 2 (n - 1) / n, which can be compared with the link's rate whatever n is.
Pure.
"""

from __future__ import annotations


def all_reduce_bus_gbit_s(size: int, seconds: float, ranks: int) -> float | None:
    """Bus bandwidth in 10^9 bits per second of an all-reduce of `size` bytes; None without a time."""
    if seconds <= 0 or ranks < 1:
        return None
    return size * 8 / seconds / 1e9 * 2 * (ranks - 1) / ranks
