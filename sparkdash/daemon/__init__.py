"""The daemon: how everything is put together, and how long each part lives.

Owns: composition, the order of start and stop, what happens when a part crashes. Must not know what any part does.
"""

from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.lifecycle import serve, expected_error
from sparkdash.daemon.main import run

__all__ = ["Daemon", "Parts", "run", "serve", "expected_error"]
