"""HTTP between one client and the gateway: request head, headers, body, answer, and the feed of events."""
