"""`sparkdash serve`: run the daemon in the foreground."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; beyond loopback only with keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for clients; 0 takes a free one.", min=0, max=65535)] = None,
    runtime: Annotated[str | None, typer.Option(help="Runtime that starts engines: podman, docker or process.")] = None,
    profiles: Annotated[list[Path] | None, typer.Option(help="Another folder of profiles; may be repeated.")] = None,
) -> None:
    """Run the daemon: the gateway and the engines behind it.

    The gateway is on /v1, the control API on /api. The daemon stays in the foreground and ends on Ctrl-C or SIGTERM.
    Its engines keep running, and the next daemon adopts them. Options override SPARKDASH_* variables, which override
    config.toml.

    \b
    Examples:
      sparkdash serve
      sparkdash serve --port 9000 --runtime docker
      sparkdash serve --profiles ~/profiles --profiles ./more
    """
    from sparkdash import settings

    load = partial(
        settings.load_settings,
        host=host,
        port=port,
        runtime=runtime,
        profiles=tuple(folder.expanduser().resolve() for folder in profiles) if profiles else None,
    )
    load()  # report wrong settings before importing the daemon, which takes a second
    from sparkdash.daemon import run

    run(load)
