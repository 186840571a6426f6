"""Place: what a client must be told, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass

LONG_S = 1800
"""How long a client should wait, in seconds: a large model loads in up to 15 minutes, and may have to wait for its turn."""
LONG_MS = LONG_S * 1000
DUMMY = "sparkdash"
"""Sent as a key where none is asked for: most clients refuse to go without."""
MASK = "YOUR_SPARKDASH_KEY"
"""What is printed in place of a key."""
VARIABLE = "SPARKDASH_KEY"
ASSUMED_CONTEXT = 32768
"""Tokens, for a profile whose context is not known; a client told too little compacts early, one told too much fails."""
OUTPUT_SHARE, MOST_OUTPUT = 4, 32768
"""An answer may take a quarter of the context, and 32768 tokens at most: agents ask for their maximum with every request."""


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """Where the gateway is, and which model a client shall use there."""

    root: str
    """http://127.0.0.1:8484: no slash at the end, no /v1."""
    model: str
    known_context: int | None
    """Tokens; None where the profile does not say."""
    key: str | None = None
    """None: the gateway asks for none."""
    sees: bool = False
    """Is the model known to read pictures? Clients that are not told so leave them out of what they send."""

    @property
    def v1(self) -> str:
        """The base URL of OpenAI's clients."""
        return f"{self.root}/v1"

    @property
    def secret(self) -> str:
        """What stands where a client wants a key."""
        return self.key or DUMMY

    @property
    def context(self) -> int:
        """Tokens, known or assumed."""
        return self.known_context or ASSUMED_CONTEXT

    @property
    def output(self) -> int:
        """The longest answer to ask for, in tokens."""
        return min(MOST_OUTPUT, self.context // OUTPUT_SHARE)
