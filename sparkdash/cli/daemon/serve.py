"""`sparkdash serve`: run the daemon in the foreground."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; beyond loopback only with keys.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for clients; 0 takes a free one.", min=0, max=65535)] = None,
    runtime: Annotated[str | None, typer.Option(help="What starts engines: podman, docker or process.")] = None,
    profiles: Annotated[list[Path] | None, typer.Option(help="A further folder of profiles; may be repeated.")] = None,
) -> None:
    """Run the daemon: the gateway and the engines behind it.

    The gateway is on /v1, the control API on /api. It stays in the foreground and ends on Ctrl-C or SIGTERM; its engines
    keep running, and the next daemon takes them over. Options win over SPARKDASH_* variables, those over config.toml.

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
    load()  # what is wrong with them is told before the daemon's half is imported
    from sparkdash.daemon import run

    run(load)
