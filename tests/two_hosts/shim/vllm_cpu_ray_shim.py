"""Platform plugin for the tests: vLLM on the CPU that may run over Ray, which the stock CPU platform refuses.

Loaded by vLLM through its entry point, and active only where VLLM_CPU_RAY is 1. A Spark needs none of it.
"""

from vllm.platforms.cpu import CpuPlatform


class CpuRayPlatform(CpuPlatform):
    """CPU platform with a Ray resource; each raylet is started with one `GPU`, which is a claim only."""

    ray_device_key = "GPU"

    @classmethod
    def get_device_communicator_cls(cls):
        """Name the communicator that never goes through shared memory."""
        return "vllm_cpu_ray_comm.NetworkedCommunicator"


def register():
    """Name the platform, if this process is told to use it."""
    import os

    return "vllm_cpu_ray_shim.CpuRayPlatform" if os.environ.get("VLLM_CPU_RAY") == "1" else None
