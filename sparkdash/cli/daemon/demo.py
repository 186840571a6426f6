"""`sparkdash demo`: run the whole product on a simulated box."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sparkdash.cli.output.screen import print_opening


def demo(
    headless: Annotated[bool, typer.Option("--headless", help="No dashboard: print the URL and serve.")] = False,
    port: Annotated[int | None, typer.Option(help="Port for clients; a free one by default.", min=0, max=65535)] = None,
    no_traffic: Annotated[bool, typer.Option("--no-traffic", help="Do not send the demo's own requests.")] = False,
    speed: Annotated[float, typer.Option(help="Run this many times faster than real.", min=0.1, max=1000.0)] = 1.0,
    nodes: Annotated[int, typer.Option(help="Simulate this many Sparks, linked by a cable.", min=1, max=2)] = 1,
) -> None:
    """Show everything on simulated engines.

    Gateway, swaps and dashboard are the real ones. Every figure is marked SIMULATED; nothing is installed, started or
    measured on this box. The demo ends on q, Ctrl-C or SIGTERM. Other commands reach it through SPARKDASH_URL. Runs
    of the bench remain when it ends; its A/B page lists the runs of simulated engines.

    \b
    Examples:
      sparkdash demo
      sparkdash demo --speed 5
      sparkdash demo --nodes 2
      sparkdash demo --headless --port 9000 --no-traffic
      SPARKDASH_URL=http://127.0.0.1:9000 sparkdash ab A B
    """
    if not headless and not sys.stdout.isatty():
        raise typer.BadParameter("the dashboard needs a terminal; use --headless in a script")
    if not headless:
        print_opening("Starting a simulated box and its daemon; the dashboard opens in some seconds.")
    from sparkdash.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(port or 0, not no_traffic, speed, nodes), headless=headless))
