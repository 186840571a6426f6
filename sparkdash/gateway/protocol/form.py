"""Form: the few fields of a multipart form that the gateway reads, found while the form comes (RFC 7578, RFC 2046).

Owns: what a boundary may look like, and where parts begin and end. Must not know where the form is kept.
Rule: a form of any size costs PART_HEADERS_LIMIT bytes of memory; the contents of files are only searched for the
boundary.

Pure.
"""

from __future__ import annotations

import re
from enum import Enum

from sparkdash.errors import AdmissionError
from sparkdash.limits import NAME

FORM = "multipart/form-data"
PART_HEADERS_LIMIT = 8192
"""Bytes of one part's headers; a form with longer ones is not read any further."""
BOUNDARY_LIMIT = 200
"""Characters of a boundary; RFC 2046 allows 70."""
VALUE_LIMIT = 4 * NAME + 2
"""Bytes of a field's value that are kept."""
_READ = frozenset({"model", "stream"})
_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*("(?:\\.|[^"\\])*"|[^;]*)')
_ESCAPED = re.compile(r"\\(.)")
_DELIMITED = re.compile(rb"(--)?[ \t]*\r\n")
"""End of a boundary line: white space of careless writers and a line end, behind two dashes for the last one."""
_AFTER_DELIMITER = 64
"""Bytes behind a boundary within which its line ends."""


class _At(Enum):
    PREAMBLE = 0
    HEADERS = 1
    CONTENT = 2
    END = 3


def form_boundary(content_type: str) -> bytes:
    """Read the boundary of a form's content type, as a token or in quotes.

    Raises:
        AdmissionError: code `invalid_form`: there is none, or it is too long.
    """
    for name, value in _PARAMETER.findall(content_type):
        if name.lower() == "boundary":
            word = _unquoted(value)
            if 0 < len(word) <= BOUNDARY_LIMIT:
                return word.encode("latin-1", "replace")
            break
    raise AdmissionError(
        "The multipart body's content type has no boundary that can be read.",
        code="invalid_form",
        hint="Leave the Content-Type to the client's library: it writes the boundary.",
    )


class FormScanner:
    """Finds the fields `model` and `stream` in a form that is fed in pieces. Nothing is ever refused here."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._kept = b"\r\n"
        """Bytes whose meaning depends on what comes; before the first boundary a line end is missing."""
        self._kept_at = -2
        """Position of `_kept` in the form."""
        self._state = _At.PREAMBLE
        self._field: str | None = None
        """Name of the field whose content comes, where it is one that is read."""
        self._value = b""
        self._value_at = 0
        self._fields: dict[str, str] = {}
        self.model_span: tuple[int, int] | None = None
        """Position of the model's name, of the last field of that name."""

    @property
    def model(self) -> str | None:
        """Value of the last complete field `model`."""
        return self._fields.get("model")

    @property
    def stream(self) -> bool:
        """Whether the form asks for a stream."""
        return self._fields.get("stream", "").strip().lower() in ("true", "1")

    def feed(self, data: bytes) -> None:
        """Read the next piece."""
        if self._state is _At.END:
            return
        self._kept += data
        while self._step():
            pass

    def _step(self) -> bool:
        """Read up to the next boundary, or the next headers; False: more must come."""
        if self._state is _At.END:
            return False
        if self._state is _At.HEADERS:
            return self._read_headers()
        return self._find_boundary()

    def _find_boundary(self) -> bool:
        kept, delimiter = self._kept, self._delimiter
        at = kept.find(delimiter)
        while at >= 0:
            after = at + len(delimiter)
            found = _DELIMITED.match(kept, after)
            if found is not None:
                self._end_content(at)
                self._drop(found.end())
                self._state = _At.END if found[1] else _At.HEADERS
                return True
            if kept.startswith(b"--", after) and len(kept) - after < _AFTER_DELIMITER:
                self._end_content(at)  # nothing has to come behind the last boundary
                self._take_until(at)
                return False
            if len(kept) - after < _AFTER_DELIMITER and kept.find(b"\r\n", after) < 0:
                self._take_until(at)
                return False
            at = kept.find(delimiter, after)
        self._take_until(max(0, len(kept) - len(delimiter) + 1))
        return False

    def _read_headers(self) -> bool:
        end = self._kept.find(b"\r\n\r\n")
        if self._kept.startswith(b"\r\n"):
            field, end = None, -2
        elif end < 0 or end > PART_HEADERS_LIMIT:
            if end > 0 or len(self._kept) > PART_HEADERS_LIMIT:
                self._state, self._kept = _At.END, b""
            return False
        else:
            field = _field_name(self._kept[:end])
        # the line end before the content may begin the next boundary, where the content is empty
        self._drop(end + 2)
        self._field = field if field in _READ else None
        self._value, self._value_at = b"", self._kept_at + 2
        self._state = _At.CONTENT
        return True

    def _end_content(self, at: int) -> None:
        if self._field is None:
            return
        end = self._kept_at + at
        value = (self._value + self._kept[:at])[2 : 2 + VALUE_LIMIT]
        self._fields[self._field] = value.decode("utf-8", "replace")
        if self._field == "model":
            self.model_span = (self._value_at, max(end, self._value_at))

    def _take_until(self, at: int) -> None:
        """Let go of bytes that are content for certain."""
        if self._field is not None and len(self._value) < VALUE_LIMIT + 2:
            self._value += self._kept[:at][: VALUE_LIMIT + 2 - len(self._value)]
        self._drop(at)

    def _drop(self, size: int) -> None:
        self._kept = self._kept[size:]
        self._kept_at += size


def _field_name(headers: bytes) -> str | None:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            return _disposition_name(value.decode("utf-8", "replace"))
    return None


def _disposition_name(value: str) -> str | None:
    return next((_unquoted(word) for name, word in _PARAMETER.findall(value) if name.lower() == "name"), None)


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return _ESCAPED.sub(r"\1", value[1:-1])
    return value
