"""Parts of a launch that every dialect shares: the command line, the container, its mounts, its use of the page cache."""
