"""A program that becomes `sparkdash serve` with inherited sockets, as systemd starts it: arguments are their descriptors."""

import fcntl
import os
import sys

FIRST = 3

given = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 100) for word in sys.argv[1:]]  # out of the way of those to be made
for index, descriptor in enumerate(given):
    os.dup2(descriptor, FIRST + index)
names = os.environ["HANDED_NAMES"]
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(given)), "LISTEN_FDNAMES": names}
os.execv(sys.executable, [sys.executable, "-m", "sparkdash", "serve"])
