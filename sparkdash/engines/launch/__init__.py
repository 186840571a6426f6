"""Parts of a launch that every dialect shares: command line, container, mounts, use of the page cache.

Pure.
"""
