"""Any other server that sparkdash starts, by its profile's own description (`server:`)."""
