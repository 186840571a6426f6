"""Families of metrics by what they tell of: engines, the gateway, the box."""
