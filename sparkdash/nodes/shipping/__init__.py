"""Images and weights on their way to another node: rsync and `podman save | podman load` over ssh, with progress."""
