"""`sparkdash serve` and `demo`: the daemon or a simulated box, in the foreground."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sparkdash.cli.output import print_opening


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


def demo(
    headless: Annotated[bool, typer.Option("--headless", help="No dashboard: print the URL and serve.")] = False,
    port: Annotated[int | None, typer.Option(help="Port for clients; a free one by default.", min=0, max=65535)] = None,
    no_traffic: Annotated[bool, typer.Option("--no-traffic", help="Do not send the demo's own requests.")] = False,
    speed: Annotated[float, typer.Option(help="Run this many times faster than real.", min=0.1, max=1000.0)] = 1.0,
    nodes: Annotated[int, typer.Option(help="Simulate this many Sparks.", min=1, max=8)] = 1,
    topology: Annotated[str, typer.Option(help="How they are connected: switch, ring or line.")] = "switch",
) -> None:
    """Show everything on simulated engines.

    Gateway, swaps and dashboard are the real ones. Every figure is marked SIMULATED; nothing is installed, started or
    measured on this box. The demo ends on q, Ctrl-C or SIGTERM. Other commands reach it through SPARKDASH_URL. Runs
    of the bench remain when it ends; its A/B page lists the runs of simulated engines.

    \b
    Examples:
      sparkdash demo
      sparkdash demo --speed 5
      sparkdash demo --nodes 4 --topology ring
      sparkdash demo --headless --port 9000 --no-traffic
      SPARKDASH_URL=http://127.0.0.1:9000 sparkdash ab A B
    """
    if topology not in ("switch", "ring", "line"):
        raise typer.BadParameter("switch, ring or line", param_hint="--topology")
    if not headless and (not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"):
        raise typer.BadParameter("the dashboard needs a terminal; use --headless in a script")
    if not headless:
        print_opening("Starting a simulated box and its daemon; the dashboard opens in some seconds.")
    from sparkdash.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(port or 0, not no_traffic, speed, nodes, topology), headless=headless))
