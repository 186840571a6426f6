"""The daemon: composition of all rooms, and the lifetime of each part."""

from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.lifecycle import expected_error, serve
from sparkdash.daemon.main import run

__all__ = ["Daemon", "Parts", "expected_error", "run", "serve"]
