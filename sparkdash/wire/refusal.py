"""Refusals before there is a request that an application could answer.

Pure.
"""

from __future__ import annotations

import json

from sparkdash.limits import HEAD


def _refusal(status: str, code: str, message: str, hint: str | None = None) -> bytes:
    """Build a complete answer, with the error body that clients of models read."""
    error = {
        "message": f"{message} {hint}" if hint else message,
        "type": "invalid_request_error",
        "param": None,
        "code": code,
        "hint": hint,
        "src": "sparkdash",
    }
    body = json.dumps({"error": error}, separators=(",", ":"))
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n{body}".encode()


NO_REQUEST = _refusal(
    "400 Bad Request", "bad_request", "The HTTP request cannot be read.", "HTTP/1.1 needs one Host header."
)
TOO_LATE = _refusal("408 Request Timeout", "request_timeout", "The request was not complete in time.")
TOO_LARGE = _refusal(
    "431 Request Header Fields Too Large",
    "head_too_large",
    f"The request line and headers are larger than {HEAD // 1024} KiB.",
)
