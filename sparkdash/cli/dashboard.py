"""The dashboard in this terminal with the daemon that it needs, and how the program ends.

Rule: no typer, and nothing of the commands: this is all that `sparkdash` without a command loads of the command line.
"""

import errno
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from sparkdash.errors import HostError, SparkdashError

if TYPE_CHECKING:
    from sparkdash.tui.first_run import BoxLook


def open_dashboard() -> None:
    """Start a daemon if none runs, and show the dashboard until the user quits."""
    gc.disable()  # while modules are loaded, which all stay: collections are a twentieth of the start
    try:
        from sparkdash.cli.running_daemon import start_daemon_if_needed

        start_daemon_if_needed()
        import sparkdash.tui.app  # noqa: F401 - loaded before collections begin
    finally:
        gc.enable()
    gc.freeze()  # so that no later collection walks through what was loaded
    from sparkdash.client.address import find_daemon
    from sparkdash.tui.app import run_dashboard

    run_dashboard(box=None if find_daemon().given else this_box)


def this_box() -> "BoxLook":
    """Return what looks at this box; its modules take a sixth of the dashboard's start, and few looks need them."""
    from sparkdash.cli.this_box import ThisBox

    return ThisBox()


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
