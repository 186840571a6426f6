"""`python -m sparkdash` is the `sparkdash` command."""

from sparkdash.cli.start import main

if __name__ == "__main__":
    main()
