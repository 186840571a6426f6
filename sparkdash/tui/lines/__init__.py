"""Pure functions that turn domain values and a View into lines of styled text."""
