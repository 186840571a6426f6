"""A real llama-server that is stopped while it works, and one that is slow and well, before a daemon in a hurry."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stuck
import tiny_profiles

pytestmark = [pytest.mark.full, pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(new_daemon: Callable[..., Any], llama: Path) -> Iterator[Any]:
    """A daemon that starts llama-server as a plain process."""
    daemon = new_daemon(runtime="process", stop_grace_s=20)
    daemon.program = stuck.PROGRAM
    daemon.write("small", tiny_profiles.llama_document(llama))
    return daemon.start()


def test_a_stopped_llama_server_is_named_ended_and_its_requests_replayed(spark: Any) -> None:
    """The stream that had begun is told in-band; the request without a byte is answered by the next engine."""
    seen = stuck.stuck(spark, "small", stuck.whole)
    seen.check(spark, "small", named_s=stuck.STOPPED_S)
    assert seen.incident["end"] == "restarted"
    assert Path(seen.incident["evidence"]).is_dir()
