"""Mend: the name of one thing that the gateway sets right in a request for the engine that will read it.

What each does is the gateway's business (docs/requests.md); the names are here because profiles switch them off.
"""

from __future__ import annotations

from enum import StrEnum


class MendName(StrEnum):
    """In the order in which they are applied."""

    CLAUDE_BILLING_LINE = "claude-billing-line"
    MESSAGES_SYSTEM_TURNS = "messages-system-turns"
    MESSAGES_NEW_KEYS = "messages-new-keys"
    RESPONSES_TOOL_TYPES = "responses-tool-types"
    RESPONSES_SEALED_REASONING = "responses-sealed-reasoning"
    RESPONSES_MAX_TOKENS = "responses-max-tokens"
    RESPONSES_CLIENT_METADATA = "responses-client-metadata"
    ECHOED_PROGRESS = "echoed-progress"
