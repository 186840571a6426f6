"""Head: what a request says before its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import httptools

Fields = list[tuple[bytes, bytes]]


class Head:
    """A request's first line and its headers, but for the body's length. A client that keeps its connection says the same again and
    again: that is one object then, and what was found out about it is kept in `memo`.

    `scope`: ASGI's, without the length. Whoever gets it must change nothing in it.
    """

    __slots__ = ("_fields", "_method", "_url", "_version", "expects", "is_old", "memo", "scope")

    def __init__(self, connection: Mapping[str, Any], method: bytes, url: bytes, version: str, fields: Fields) -> None:
        """`connection`: what ASGI's scope says of it. Raises httptools.HttpParserError or ValueError: the URL is none."""
        self._method, self._url, self._version, self._fields = method, url, version, fields
        raw_path, query = _parted(url)
        path = raw_path.decode("ascii")
        headers = [(name.lower(), value) for name, value in fields]
        self.scope: dict[str, Any] = {
            **connection,
            "http_version": version,
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
        }
        self.is_old = version == "1.0"
        """Is it of HTTP/1.0, which knows neither chunks nor connections that are kept?"""
        self.expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
        """Does the client wait with its body until it is told to go on?"""
        self.memo: dict[object, Any] = {}
        """For whoever serves the connection: what follows from the head alone."""

    def is_said_by(self, method: bytes, url: bytes, version: str, fields: Fields) -> bool:
        """Are these the same words?"""
        return fields == self._fields and url == self._url and method == self._method and version == self._version


def _parted(url: bytes) -> tuple[bytes, bytes]:
    parsed = httptools.parse_url(url)
    if parsed.path is None:
        raise ValueError("an address without a path")
    return parsed.path, parsed.query or b""
