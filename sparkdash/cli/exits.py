"""How the program ends: exit codes, the panel of an expected failure, a clean Ctrl-C, a quiet broken pipe.

Rule: the standard library alone is imported before something fails, as the dashboard's start is short.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sparkdash.errors import HostError, SparkdashError


@contextmanager
def exit_codes() -> Iterator[None]:
    """Exit with the error's own code, or 130 after Ctrl-C; without an error do nothing."""
    try:
        yield
    except SparkdashError as error:
        _end(error)
    except BaseExceptionGroup as group:
        from sparkdash.daemon import expected_error  # the only one that raises groups, so it is loaded already

        if (known := expected_error(group)) is None:
            raise
        _end(known)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has left
        _no_more_output()
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _no_more_output()
        _end(HostError(f"{error.filename or 'The output'} cannot be written: {error.strerror}.", code="disk_full"))


def _no_more_output() -> None:
    """Redirect stdout to /dev/null: otherwise the interpreter complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(error: SparkdashError) -> NoReturn:
    from sparkdash.cli import output

    output.print_error(error, as_json="--json" in sys.argv[1:])
    sys.exit(error.exit_code)
