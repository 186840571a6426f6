"""How the command line and the TUI talk to the daemon.

Owns: where it is found, its requests and errors as Python values, its feed, and starting it in the background.
Must not know: anything behind `/api`.
"""
