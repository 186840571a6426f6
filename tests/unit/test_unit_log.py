"""The daemon's log, where it cannot be written."""

import errno
import sys

import pytest

from sparkdash.log import LOG


class Full:
    """A file on a full disk."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_cannot_be_written_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a full disk serves on: it ended at the next line, and did not start."""
    monkeypatch.setattr(sys, "stderr", Full())
    LOG.info("serving", url="http://127.0.0.1:8484/v1")


def test_a_line_has_time_level_event_and_figures_and_an_error_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    LOG.debug("nobody reads it")
    LOG.warning("NVML does not answer", seconds=2.5, why="it's late")
    try:
        {}["broken"]
    except KeyError:
        LOG.exception("a look failed", profile="alpha")
    first, second, *trace = capsys.readouterr().err.splitlines()
    assert first.split(" ", 1)[1] == """[warning  ] NVML does not answer           seconds=2.5 why="it's late\""""
    assert second.endswith("[error    ] a look failed                  profile=alpha")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "KeyError: 'broken'")
