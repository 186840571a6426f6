"""The dashboard of the terminal in a browser, `sparkdash web`."""
