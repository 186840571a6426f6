"""`sparkdash profiles` and `sparkdash pull`: list, check, create, convert and fetch what profiles describe."""
