"""The bench: measures profiles against each other over engine launches, and says what can be claimed."""
