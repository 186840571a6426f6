"""Words between the gateway and the translator. Plain data, known to both."""

from __future__ import annotations

ENGINE = "x-sparkdash-engine"
"""Request: the base URL, with /v1, of the engine that is asked. Its key, where it has one, is in Authorization."""
FAULT = b"x-sparkdash-fault"
"""Answer: it is no engine's. `unreachable`: the engine did not answer; the body has the words."""
UNREACHABLE = b"unreachable"
