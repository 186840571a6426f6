"""Access to the gateway: keys with their rights, and the audit log."""
