"""The daemon: how everything is put together, and how long each part lives.

Owns: composition, the order of start and stop, what happens when a part crashes. Must not know what any part does.
"""

from sparkdash.daemon.house import House, Parts
from sparkdash.daemon.life import serve, told_why
from sparkdash.daemon.real import run

__all__ = ["House", "Parts", "run", "serve", "told_why"]
