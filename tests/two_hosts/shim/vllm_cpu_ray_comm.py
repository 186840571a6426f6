"""Communicator for the tests: over Ray both ranks get one shared-memory name, which vLLM takes for one machine."""

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class NetworkedCommunicator(CpuCommunicator):
    """Ranks that talk over the network, whatever names they have."""

    def _all_group_ranks_share_shm_group_name(self):
        return False
