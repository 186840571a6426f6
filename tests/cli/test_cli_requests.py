"""`sparkdash requests`, and `sparkdash cancel REQUEST`."""

from collections.abc import Callable
from typing import Any

from fake_daemon import BIRTH, FakeDaemon

from sparkdash.domain.request import Request, RequestState

Run = Callable[..., Any]
OPEN = {
    "a1": Request(id="a1", client="codex", profile="qwen", route="/v1/responses", state=RequestState.STREAMING,
                  started_at=BIRTH, granted_at=BIRTH),
    "b2": Request(id="b2", client="aider", profile="gpt-oss-120b", route="/v1/chat/completions",
                  state=RequestState.WAITING, started_at=BIRTH + 40, position=2),
}  # fmt: skip
OVER = Request(
    id="c3", client="cline", profile="qwen", route="/v1/chat/completions", state=RequestState.FAILED,
    started_at=BIRTH, finished_at=BIRTH + 2, error="out_of_memory", completion_tokens=7,
)  # fmt: skip


def test_requests_with_their_ids(sparkdash: Run, daemon: FakeDaemon) -> None:
    """What waits tells its place; what is over only comes when it is asked for, with its error."""
    assert sparkdash("requests").out == "No request is waiting or running.\n"
    daemon.set(at=BIRTH + 60, requests=OPEN, recent=(OVER,))
    assert (
        sparkdash("requests").out
        == """\
id  client  profile       state       age  prompt  out  tok/s
a1  codex   qwen          decodes   1m00s       -    -      -
b2  aider   gpt-oss-120b  waits #2    20s       -    -      -
"""
    )
    assert sparkdash("requests", "--all").out.splitlines()[-1].split() == [
        "c3", "cline", "qwen", "out_of_memory", "2s", "-", "7", "-",
    ]  # fmt: skip
    assert [row["id"] for row in sparkdash("requests", "--all", "--json").json()] == ["a1", "b2", "c3"]


def test_one_request_is_cancelled(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash("cancel", "a1").out == "Cancelled request a1.\n"
    assert sparkdash("cancel", "a1", "--json").json() == {"cancelled": {"request": "a1"}}
    assert daemon.calls[-1] == ("POST", "/api/requests/a1/cancel", {})
    envelope = {"message": "No request 'a1' waits or runs.", "code": "request_not_found", "hint": "See the list."}
    daemon.errors["/api/requests/a1/cancel"] = (404, envelope)
    done = sparkdash("cancel", "a1")
    assert done.code != 0
    assert "No request 'a1' waits or runs." in done.err
