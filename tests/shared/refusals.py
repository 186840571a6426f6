"""Errors of ours, as tests expect them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkdash.errors import SparkdashError


@contextmanager
def refused(code: str, match: str | None = None, *, hint: str = "") -> Iterator[pytest.ExceptionInfo[SparkdashError]]:
    """Expect an error with this code, these words (a pattern), and this in its hint."""
    with pytest.raises(SparkdashError, match=match) as caught:
        yield caught
    assert caught.value.code == code
    assert hint in (caught.value.hint or "")
