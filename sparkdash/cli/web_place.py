"""Where `sparkdash web` serves the dashboard, and who may open it."""

from __future__ import annotations

import socket
import ssl
import time

from sparkdash.access.keyring import Keyring, Keys, keys_file
from sparkdash.cli.output import print_note
from sparkdash.errors import ProfileError, SparkdashError
from sparkdash.listen import Tls
from sparkdash.settings import Settings, load_settings
from sparkdash.web.place import Place
from sparkdash.web.visitor_check import KeyedVisitorCheck, VisitorCheck, opens_dashboard


def place_of(host: str, port: int) -> tuple[Place, VisitorCheck]:
    """Return the address to serve at, and the check of its visitors.

    Raises:
        ProfileError: `keys_needed`: no key opens the dashboard beyond loopback; or the settings are wrong.
        HostError: the TLS files cannot be used.
    """
    settings = load_settings(host=host)
    if not settings.beyond_loopback:
        return Place("127.0.0.1" if host == "localhost" else host, port), VisitorCheck()
    keys = Keyring(keys_file())
    if not any(opens_dashboard(key, time.time()) for key in keys.look()):
        raise ProfileError(
            f"sparkdash would show the dashboard to everybody who can reach {host}: no key opens it yet.",
            code="keys_needed",
            hint="Make one with `sparkdash keys add NAME --scope control`, or stay on 127.0.0.1 and use `ssh -L`.",
        )
    tls = _tls(settings)
    if tls is None:
        print_note("Keys cross the network in clear text: set tls_cert and tls_key in config.toml.")
    box = socket.gethostname()
    names = (box, f"{box}.local", *settings.host_names)
    return Place(host, port, tls), KeyedVisitorCheck(
        lambda: _keys_now(keys), time.time, names, "https" if tls else "http"
    )


def _keys_now(keyring: Keyring) -> Keys:
    """Return the keys of now; the last ones that could be read of a file that is damaged since."""
    try:
        return keyring.look()
    except SparkdashError:
        return keyring.last


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    files = Tls(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    files.check()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    return context
