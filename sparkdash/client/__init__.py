"""Client: the command line's and the TUI's way to the daemon."""
