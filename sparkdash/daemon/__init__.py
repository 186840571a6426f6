"""The daemon: composition of all rooms, and the lifetime of each part.

Owns: composition, the order of start and stop, what happens when a part crashes. Must not know what any part does.
"""

from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.lifecycle import expected_error, serve
from sparkdash.daemon.main import run

__all__ = ["Daemon", "Parts", "expected_error", "run", "serve"]
