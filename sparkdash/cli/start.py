"""Console script of `sparkdash`: opens the dashboard without the command line, or runs the command line.

How the program ends is here too: exit codes, the panel of an expected failure, a clean Ctrl-C, a quiet broken pipe.
Rule: next to nothing is imported before something is to do, and no command before the dashboard: loading the command
line takes as long as the dashboard itself.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sparkdash.cli import OPENING
from sparkdash.errors import HostError, SparkdashError

COMPLETION = "_SPARKDASH_COMPLETE"
"""Variable by which a shell asks for the completion of commands; it gives no arguments."""


def main() -> None:
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    if len(sys.argv) > 1 or not on_terminal or COMPLETION in os.environ:
        from sparkdash.cli.main import main as run_command_line

        run_command_line()
        return
    sys.stderr.write(f"{OPENING}\r")
    sys.stderr.flush()
    from sparkdash.cli.dashboard import open_dashboard

    with exit_codes():
        open_dashboard()


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
