"""Client: the command line's and the TUI's way to the daemon.

Owns: where the daemon is found, how the calls of `sparkdash.api` are sent, the feed, and starting a daemon in the
background. Must not know: anything behind `/api`.
"""
