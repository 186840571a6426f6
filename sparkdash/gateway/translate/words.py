"""Headers between the gateway and the translator.

Pure.
"""

from __future__ import annotations

ENGINE = "x-sparkdash-engine"
"""Request: base URL, with /v1, of the engine. Its key, if any, is in Authorization."""
FAULT = b"x-sparkdash-fault"
"""Answer: not from an engine. `unreachable`: the engine did not answer; the body says why."""
UNREACHABLE = b"unreachable"
