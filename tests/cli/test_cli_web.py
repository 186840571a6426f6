"""`sparkdash web`: what it prints, and what it says where it cannot begin."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest
from programs import Program

from sparkdash.cli import serve


def test_without_its_extra_it_names_the_command(sparkdash: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda _name: None)
    done = sparkdash("web")
    assert done.code != 0
    assert "pip install 'sparkdash[web]'" in done.err
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_told_with_the_way_out(sparkdash: Any, daemon: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = sparkdash("web", "--port", str(taken.getsockname()[1]))
    assert done.code != 0
    assert "--port 0" in done.err
    assert "Traceback" not in done.err


def test_it_prints_an_address_that_alone_opens_it_and_ends_cleanly(daemon: Any) -> None:
    with Program(["-m", "sparkdash", "web", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            found = re.search(r"http://\S+(?=\")", "".join(iter(child.stdout.readline, "}\n")))
            assert found is not None
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with pytest.raises(urllib.error.HTTPError) as refused:
                opener.open(found[0].partition("?")[0], timeout=30)
            assert refused.value.code == 403
            refused.value.close()
            with opener.open(found[0], timeout=30) as page:
                assert b"textual-terminal" in page.read()
        finally:
            child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


def test_beyond_loopback_it_is_refused_without_a_key_that_opens_it(sparkdash: Any, daemon: Any) -> None:
    sparkdash("keys", "add", "models")
    done = sparkdash("web", "--host", "0.0.0.0", "--port", "0")
    assert done.code != 0
    assert "sparkdash keys add NAME --scope control" in done.err
    assert "Traceback" not in done.err
