"""WeightFacts: size, KV cache and bytes read per token of a checkpoint, from its headers alone. Pure."""

from enum import StrEnum

from pydantic import Field

from sparkdash.domain.base import Frozen

BF16_BITS = 16.0


class Attention(StrEnum):
    """Kind of state that a layer keeps of earlier tokens."""

    FULL = "full"
    """Keys and values (or one latent) of every token."""
    SLIDING = "sliding"
    """Keys and values of the last `window` tokens."""
    LINEAR = "linear"
    """A state of fixed size per sequence (Mamba, Gated DeltaNet)."""


class KvLayers(Frozen):
    """Layers with the same KV geometry. Elements are per token and layer, states in bytes per sequence and layer."""

    kind: Attention
    layers: int = Field(gt=0)
    key_elements: int = Field(default=0, ge=0)
    """KV heads x head size; for MLA the whole latent, which serves as key and value."""
    value_elements: int = Field(default=0, ge=0)
    window: int | None = Field(default=None, gt=0)
    state_bytes: int | None = Field(default=None, ge=0)

    def bytes(self, tokens: int, sequences: int, key_bits: float, value_bits: float, step: int = 0) -> int | None:
        """Compute the KV cache's bytes for `tokens` tokens in `sequences` sequences; windows hold one step more."""
        if self.kind is Attention.LINEAR:
            return None if self.state_bytes is None else self.layers * self.state_bytes * sequences
        held = min(tokens, self.window * sequences + step) if self.window else tokens
        return int(self.layers * held * (self.key_elements * key_bits + self.value_elements * value_bits) / 8)


class WeightBytes(Frozen):
    """Bytes of all tensors by purpose. They add up to the whole checkpoint."""

    dense: int = Field(default=0, ge=0)
    """Attention, norms, routers, shared experts, dense MLPs: read for every token."""
    experts: int = Field(default=0, ge=0)
    """Routed experts: a token reads its share of them."""
    embedding: int = Field(default=0, ge=0)
    """Looked up, one row a token."""
    head: int = Field(default=0, ge=0)
    """The LM head: read for every token. 0 when it is the embedding again."""
    draft: int = Field(default=0, ge=0)
    """Multi-token-prediction layers."""
    senses: int = Field(default=0, ge=0)
    """Vision and audio towers: not read while text is decoded."""

    @property
    def total(self) -> int:
        return self.dense + self.experts + self.embedding + self.head + self.draft + self.senses


class WeightFacts(Frozen):
    """Facts about one checkpoint. Bytes are of the tensors, without file headers; None is unknown."""

    origin: str
    format: str
    """safetensors or gguf."""
    architecture: str | None = None
    """`model_type` of config.json, or `general.architecture` of a GGUF file."""
    bytes: WeightBytes
    parameters: int | None = None
    """Number of unquantized weights; scales and zero points do not count."""
    layers: int | None = None
    hidden: int | None = None
    kv: tuple[KvLayers, ...] = ()
    """Layers with state, grouped by geometry. Empty: unknown."""
    experts: int | None = None
    active_experts: int | None = None
    tied_head: bool = False
    """Whether the embedding also serves as LM head, and is then read whole for every token."""
    context: int | None = None
    """Native context length in tokens."""
    dtype: str | None = None
    """Type of the unquantized tensors: bfloat16, float16, float32."""
    quantization: str | None = None
    """nvfp4, mxfp4, fp8, gptq int4, …; None is unquantized."""
    kv_dtype: str | None = None
    """Type of the KV cache that the checkpoint itself requests: fp8, or None."""
    sees: bool = False
    """Whether the tensors include a vision tower."""

    @property
    def mtp(self) -> bool:
        return self.bytes.draft > 0

    @property
    def hybrid(self) -> bool:
        """Whether the layers have different KV geometries."""
        return len(self.kv) > 1

    def kv_bytes(
        self,
        tokens: int,
        sequences: int = 1,
        key_bits: float = BF16_BITS,
        value_bits: float | None = None,
        step: int = 0,
    ) -> int | None:
        """Compute the KV cache for `tokens` tokens in `sequences` sequences; None while a layer's kind is unknown.

        Of `step` tokens, computed at once, all enter a window before older ones leave it. As vLLM's FullAttentionSpec,
        SlidingWindowSpec and MambaSpec (v1/kv_cache_interface.py).
        """
        sizes = [layer.bytes(tokens, sequences, key_bits, value_bits or key_bits, step) for layer in self.kv]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None

    @property
    def head_bytes(self) -> int:
        return self.bytes.embedding if self.tied_head and not self.bytes.head else self.bytes.head

    def kv_bytes_per_token(self, bits: float = BF16_BITS) -> int | None:
        """Bytes of one more token in a long sequence: the full layers alone."""
        if not self.kv:
            return None
        full = (layer for layer in self.kv if layer.kind is Attention.FULL)
        return sum(layer.bytes(1, 1, bits, bits) or 0 for layer in full)

    def active_bytes(self) -> int | None:
        """Bytes of weights read per decoded token: dense weights, LM head, top-k experts; None while unknown.

        The embedding is a lookup. This is the roofline of decode; several positions at once hit more experts.
        """
        if not self.bytes.experts:
            return self.bytes.dense + self.head_bytes
        if not self.experts or not self.active_experts:
            return None
        experts = self.bytes.experts * min(self.active_experts, self.experts) // self.experts
        return self.bytes.dense + self.head_bytes + experts


class Unread(Frozen):
    """Weights whose headers could not be read."""

    reason: str
    """Absent, incomplete or malformed: the reason in words, and what to do."""
