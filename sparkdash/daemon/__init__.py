"""The daemon: composition of all rooms, and the lifetime of each part."""

from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.lifecycle import expected_error, run, serve

__all__ = ["Daemon", "Parts", "expected_error", "run", "serve"]
