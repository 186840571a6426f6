"""Memory that a launch will need, estimated from the profile and the checkpoint before anything was measured."""
