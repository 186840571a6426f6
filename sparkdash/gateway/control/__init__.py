"""Control: the routes of `/api`."""
