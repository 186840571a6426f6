"""Images built on this box by `build:` of a profile: the source, the looks before, `podman build`, and its labels."""
