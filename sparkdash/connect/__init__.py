"""Client set-up: each client's configuration as data, and safe writing of its files."""
