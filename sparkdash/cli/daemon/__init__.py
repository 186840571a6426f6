"""Commands that run the daemon: in the foreground, as a systemd service, or as a demo on a simulated box."""
