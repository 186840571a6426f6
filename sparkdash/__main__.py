"""`python -m sparkdash` is the `sparkdash` command."""

from sparkdash.cli.main import main

if __name__ == "__main__":
    main()
