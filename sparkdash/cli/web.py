"""`sparkdash web`: the dashboard of the terminal in a browser."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from sparkdash.cli.output import print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson

HOST = "127.0.0.1"
PORT = 8485
SCREEN = (sys.executable, "-m", "sparkdash.cli.dashboard")


def web(
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on. Beyond loopback every visitor needs a key.")] = HOST,
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
            hint="pip install 'sparkdash[web]', where sparkdash is; the page for phones at the gateway needs nothing.",
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
