"""Facts about a model on the Hugging Face hub: config.json and the headers of its weights, by range requests.

Owns: which files are requested, and what their absence means. Must not know: profiles, terminals. No weights are
fetched, and nothing is left in the owner's cache: a partial repository there would look like a broken download.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sparkdash.catalog.checkpoint import safetensors, weights
from sparkdash.catalog.checkpoint.safetensors import Tensor
from sparkdash.domain.weights import WeightFacts
from sparkdash.errors import HostError
from sparkdash.host.hub.failures import as_host_error

if TYPE_CHECKING:
    from huggingface_hub import HfApi

AT_ONCE = 8
"""Parallel requests for headers: large models have a hundred files."""
TIMEOUT_S = 20.0
"""Longest silence of a request."""
HINTS = {
    "weights_unknown": "Write owner/name as on its page on the hub; a private one needs `hf auth login` or HF_TOKEN.",
    "hub_unreachable": "Check this box's network, or give a folder that holds the model.",
}
"""Hints in place of those for a download."""


def read_weight_headers(repository: str, revision: str = "main", endpoint: str | None = None) -> WeightFacts:
    """Read the facts of `owner/name`. Loads the hub's library; takes seconds, longer for a large model.

    Raises:
        HostError: the hub cannot be reached, has no such model, or refuses it.
        ProfileError: `weights_unreadable`: the model has no safetensors, or a malformed header.
    """
    try:
        with as_host_error(repository, revision):
            return _read(repository, revision, endpoint)
    except HostError as error:
        error.hint = HINTS.get(error.code, error.hint)
        raise


def _read(repository: str, revision: str, endpoint: str | None) -> WeightFacts:
    from huggingface_hub import HfApi

    hub = _Repository(HfApi(endpoint=endpoint, library_name="sparkdash"), repository, revision)
    config = hub.json(weights.CONFIG)
    if config is None:
        raise safetensors.unreadable_weights(
            f"{repository} has no {weights.CONFIG}", "A GGUF model can be read once it is on this box."
        )
    sidecar, index = hub.json(weights.SIDECAR), hub.json(safetensors.INDEX)
    whole = ["model.safetensors"]
    files = whole if index is None else safetensors.index_files(index, f"{safetensors.INDEX} of {repository}")
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="headers") as pool:
        found = [tensor for tensors in pool.map(hub.tensors, files) for tensor in tensors]
    return weights.assemble_weight_facts(repository, config, sidecar or {}, found)


class _Repository:
    """Model on the hub at one revision."""

    def __init__(self, api: HfApi, name: str, revision: str) -> None:
        self.api, self.name, self.revision = api, name, revision

    def json(self, file: str) -> dict[str, Any] | None:
        """Fetch a small file of JSON; None without such a file."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.errors import EntryNotFoundError
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

        url = hf_hub_url(self.name, file, revision=self.revision, endpoint=self.api.endpoint)
        answer = get_session().get(url, headers=build_hf_headers(library_name="sparkdash"), timeout=TIMEOUT_S)
        try:
            hf_raise_for_status(answer)
        except EntryNotFoundError:
            return None
        return safetensors.parse_json_object(answer.content, f"{file} of {self.name}")

    def tensors(self, file: str) -> list[Tensor]:
        """Fetch the header of one file and list its tensors."""
        from huggingface_hub.errors import EntryNotFoundError, SafetensorsParsingError

        try:
            header = self.api.parse_safetensors_file_metadata(
                self.name, file, revision=self.revision, timeout=TIMEOUT_S
            )
        except EntryNotFoundError:
            raise safetensors.unreadable_weights(f"{self.name} has no {file}") from None
        except SafetensorsParsingError:
            raise safetensors.unreadable_weights(f"{file} of {self.name} has a malformed header") from None
        return [
            Tensor(name, info.dtype, tuple(info.shape), max(0, info.data_offsets[1] - info.data_offsets[0]))
            for name, info in header.tensors.items()
        ]
