"""Commands about other boxes."""
