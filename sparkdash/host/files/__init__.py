"""Files of the box: changes, opens, page cache, and the size of logs.

Owns: inotify, advice to the kernel about cached pages, and cutting logs. Must not know whose files they are.
"""
