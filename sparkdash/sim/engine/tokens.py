"""Tokenizer without a vocabulary: about four characters per token, stable under continuation.

Owns: text to tokens and back. Must not know prompts or models.
Stable means: the tokens of a text begin with the tokens of any of its beginnings, save the last one. Prefix
caching rests on that. A token is at most six bytes, so its id can hold it: ids need no table and turn back.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    rb" ?[A-Za-z]{1,5}|[0-9]{1,3}| ?[\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]{1,3}|\s{1,6}|[\x80-\xff]{1,6}|[\x00-\x7f]"
)
_MARK = b"\x01"
"""Set before a token's bytes in its id, so that leading zero bytes survive."""


def tokenize(text: str) -> list[bytes]:
    """Return the tokens of `text`; joined they are its UTF-8 bytes."""
    return _TOKEN.findall(text.encode("utf-8", errors="replace"))


def text_of(tokens: list[bytes]) -> str:
    """Return the text of `tokens`; a character cut in half becomes U+FFFD."""
    return b"".join(tokens).decode("utf-8", errors="replace")


def token_id(token: bytes) -> int:
    """Return a number below 2**50, exact in JSON's doubles."""
    return int.from_bytes(_MARK + token, "big")


def token_of(number: int) -> bytes:
    """Return the token of an id. Raises ValueError for an invalid id."""
    raw = number.to_bytes(8, "big").lstrip(b"\x00") if 0 <= number < 2**56 else b""
    if not raw.startswith(_MARK) or len(raw) == 1:
        raise ValueError(f"{number} is no token id of this model")
    return raw[1:]
