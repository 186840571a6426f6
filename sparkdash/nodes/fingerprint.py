"""Fingerprint of a host key, as ssh prints it.

Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib


def fingerprint(host_key: str) -> str:
    """Return `SHA256:` and 43 characters for a key as in known_hosts: `ssh-ed25519 AAAA…`. Raises ValueError."""
    _, _, data = host_key.partition(" ")
    try:
        raw = base64.b64decode(data.split(" ")[0], validate=True)
    except binascii.Error:
        raw = b""
    if not raw:
        raise ValueError(f"{host_key!r} is no host key: it must be its kind and its data, such as ssh-ed25519 AAAA…")
    return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
