"""Frozen values that every room shares, JSON-ready through pydantic, and `state.apply`. Pure."""
