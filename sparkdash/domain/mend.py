"""Names of the corrections that the gateway makes to a request for the engine that will read it.

Owns: the names, because profiles switch corrections off (`mends_off`). The gateway defines each one
(docs/requests.md).
Pure.
"""

from __future__ import annotations

from enum import StrEnum


class MendName(StrEnum):
    """Name of a correction, in the order of application."""

    CLAUDE_BILLING_LINE = "claude-billing-line"
    MESSAGES_SYSTEM_TURNS = "messages-system-turns"
    MESSAGES_NEW_KEYS = "messages-new-keys"
    RESPONSES_TOOL_TYPES = "responses-tool-types"
    RESPONSES_SEALED_REASONING = "responses-sealed-reasoning"
    RESPONSES_MAX_TOKENS = "responses-max-tokens"
    RESPONSES_CLIENT_METADATA = "responses-client-metadata"
    ECHOED_PROGRESS = "echoed-progress"
