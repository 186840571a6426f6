"""`sparkdash serve`, `demo` and `web`: the daemon, a simulated box or the dashboard for browsers, in the foreground."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from sparkdash.cli.output import print_json, print_note, print_opening, print_text
from sparkdash.cli.parameters import AsJson
from sparkdash.paths import PYTHON, install_command

WEB_HOST = "127.0.0.1"
WEB_PORT = 8485
SCREEN = (*PYTHON, "-m", "sparkdash.cli.dashboard")


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
    nodes: Annotated[int, typer.Option(help="Simulate this many Sparks in one network.", min=1, max=8)] = 1,
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


def web(
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = WEB_PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Beyond loopback every visitor needs a key.")
    ] = WEB_HOST,
    as_json: AsJson = False,
) -> None:
    """Serve the dashboard to a browser on this box.

    It prints an address with a token, which opens the dashboard; the browser then keeps a cookie. From another box,
    forward the port: `ssh -L 8485:127.0.0.1:8485 spark`. At most four tabs are served at once. Ctrl-C ends it; the
    daemon and its engines keep running. For a phone, open the gateway's own address instead.

    With `--host 0.0.0.0` other boxes can open it. Each browser then asks for a key with the scope `control` and without
    `--models`. The connection is https if `tls_cert` and `tls_key` are set in config.toml.

    \b
    Examples:
      sparkdash web
      sparkdash web --port 0 --json
      sparkdash web --host 0.0.0.0
      SPARKDASH_URL=http://127.0.0.1:9000 sparkdash web
    """
    if find_spec("textual_serve") is None:
        from sparkdash.errors import HostError

        raise HostError(
            "`sparkdash web` needs textual-serve, which is not installed.",
            code="web_missing",
            hint=f"{install_command('web')}; the page for phones at the gateway needs nothing.",
        )
    import asyncio

    from sparkdash.cli.running_daemon import start_daemon_if_needed
    from sparkdash.web.server import serve_dashboard
    from sparkdash.web.visitors import KeyedVisitorCheck, place_of

    place, visitors = place_of(host, port)
    if place.tls is None and isinstance(visitors, KeyedVisitorCheck):
        print_note("Keys cross the network in clear text: set tls_cert and tls_key in config.toml.")
    start_daemon_if_needed()

    def ready(address: str) -> None:
        if as_json:
            print_json({"url": address})
        else:
            print_text(address)
            print_note(visitors.invitation)

    asyncio.run(serve_dashboard(place, visitors, SCREEN, ready))
