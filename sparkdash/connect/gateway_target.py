"""GatewayTarget: address, model and key for which a client is configured.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_S = 1800
"""Time-out for clients in seconds: a large model loads in up to 15 minutes, and may have to wait for its turn."""
LONG_MS = LONG_S * 1000
DUMMY = "sparkdash"
"""Key sent where the gateway requires none: most clients refuse to run without."""
MASK = "YOUR_SPARKDASH_KEY"
"""Text printed in place of a key."""
VARIABLE = "SPARKDASH_KEY"
ASSUMED_CONTEXT = 32768
"""Tokens assumed for a profile of unknown context. A client told too little compacts early; one told too much fails."""
OUTPUT_SHARE, MOST_OUTPUT = 4, 32768
"""Longest answer to request: a quarter of the context, at most 32768 tokens. Agents request their maximum every time.
"""


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """Address of the gateway, and the model that a client shall use there."""

    root: str
    """http://127.0.0.1:8484: no slash at the end, no /v1."""
    model: str
    known_context: int | None
    """Tokens; None where the profile does not say."""
    key: str | None = None
    """Access key; None where the gateway requires none."""
    sees: bool = False
    """Whether the model is known to read images. Clients that are not told so leave images out."""

    @property
    def v1(self) -> str:
        """Base URL for OpenAI clients."""
        return f"{self.root}/v1"

    @property
    def secret(self) -> str:
        """Key to configure: the access key, or a dummy."""
        return self.key or DUMMY

    @property
    def context(self) -> int:
        """Tokens, known or assumed."""
        return self.known_context or ASSUMED_CONTEXT

    @property
    def output(self) -> int:
        """Longest answer to request, in tokens."""
        return min(MOST_OUTPUT, self.context // OUTPUT_SHARE)
