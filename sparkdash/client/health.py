"""Whether a daemon answers.

Must not know the table of the control API: the dashboard asks this before its first frame, and the table's models are
loaded behind it.
"""

from __future__ import annotations

from sparkdash.api.rows import HttpCall
from sparkdash.client.address import Address
from sparkdash.client.daemon_connection import DaemonConnection
from sparkdash.errors import SparkdashError

HEALTH = HttpCall("GET", "/health", None)
"""Not part of the control API: it needs no key, and any answer will do."""
HEALTH_S = 5.0
"""Limit of a look at the health. A daemon answers at once; another program that holds its port may never."""
FIRST_ERROR_STATUS = 400


def is_serving(address: Address) -> bool:
    """Return whether a daemon answers at this address; never raise."""
    connection = DaemonConnection(address)
    try:
        with connection.exchange(HEALTH, HEALTH_S) as reply:
            return reply.status < FIRST_ERROR_STATUS
    except SparkdashError:
        return False
    finally:
        connection.close()
