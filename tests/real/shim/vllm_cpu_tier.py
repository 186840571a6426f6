"""Plugin for the tests: vLLM's tiered KV offloading on the CPU, which stock vLLM refuses there ("only supported on CUDA").

Only the copy between the KV cache and the staging area is ours, a plain one in place of CUDA's. Scheduler, lookup,
staging, files and counters are vLLM's own. A Spark needs none of it.
"""


def register():
    """Give the tiering spec a worker that copies in main memory."""
    from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
    from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    class CopyingWorker(OffloadingWorker):
        def __init__(self, spec, kv_caches):
            assert spec.blocks_per_chunk == 1
            self._region = SharedOffloadRegion(
                engine_id=spec._engine_id,
                num_chunks=spec.num_chunks,
                rank=spec.config.parallel.rank,
                kv_bytes_per_chunk=spec.kv_bytes_per_chunk,
                cpu_page_size=spec.cpu_page_size_per_worker,
            )
            self._pairs = [
                (one.tensor, self._region.create_next_worker_view(one.page_size_bytes)) for one in kv_caches.tensors
            ]
            self._done = []

        def _copy(self, job_id, blocks, chunks, *, store):
            for cache, staged in self._pairs:
                if store:
                    staged[chunks] = cache[blocks]
                else:
                    cache[blocks] = staged[chunks]
            self._done.append(TransferResult(job_id=job_id, success=True, transfer_size=None, transfer_time=None))
            return True

        def submit_store(self, job_id, src_spec, dst_spec):
            return self._copy(job_id, src_spec.block_ids, dst_spec.block_ids, store=True)

        def submit_load(self, job_id, src_spec, dst_spec):
            return self._copy(job_id, dst_spec.block_ids, src_spec.block_ids, store=False)

        def get_finished(self):
            done, self._done = self._done, []
            return done

        def wait(self, job_ids):
            pass

        def shutdown(self):
            self._region.cleanup()

    def get_worker(self, kv_caches):
        self._worker = self._worker or CopyingWorker(self, kv_caches)
        return self._worker

    TieringOffloadingSpec.get_worker = get_worker
