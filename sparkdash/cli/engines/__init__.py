"""Commands that start, stop and inspect engines through the daemon: use, run, stop, status, why, logs, requests."""
