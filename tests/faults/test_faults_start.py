"""Podman fails while an engine starts, at each verb and in each way.

Each fault ends in its own state with its message; nothing is left running; when podman is well again so is the service;
and somebody who asks for /health all the while is answered.
"""

from typing import Any

import pytest

pytestmark = pytest.mark.full

SERVED = None

STARTS = [
    # verb, how it fails -> the code that the client gets, a part of the message
    ("image", "hang", "runtime_timeout", "`podman image` gave no answer"),
    ("image", "125", "runtime_failed", "`podman image` failed: it said nothing"),
    ("image", "127\nsh: podman: not found", "runtime_failed", "not found"),
    ("image", "killed", "runtime_killed", "`podman image` was ended by SIGKILL"),
    ("image", "missing", "runtime_missing", "podman cannot be used"),
    ("image", "silent", SERVED, ""),
    ("image", "garbage", SERVED, ""),
    ("inspect", "hang", "runtime_timeout", "`podman inspect` gave no answer"),
    ("inspect", "125\nError: database is locked", "runtime_failed", "database is locked"),
    ("inspect", "126", "runtime_failed", "`podman inspect` failed"),
    ("inspect", "killed", "runtime_killed", "`podman inspect` was ended by SIGKILL"),
    ("inspect", "garbage", "runtime_failed", "its answer is not JSON"),
    ("inspect", "silent", "runtime_failed", "`podman inspect` failed: it said nothing"),
    ("run", "hang", "runtime_timeout", "`podman run` gave no answer"),
    ("run", "125\nError: something new", "runtime_failed", "something new"),
    ("run", "126\nError: crun: permission denied: unknown", "command_missing", "could not start"),
    ("run", "127\nError: crun: executable file not found in $PATH", "command_missing", "executable file"),
    ("run", "125\nError: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "no_gpu_device", "CDI"),
    ("run", "killed", "runtime_killed", "`podman run` was ended by SIGKILL"),
    ("run", "garbage", "runtime_failed", "the container was gone at once"),
    ("run", "silent", SERVED, ""),
    ("wait", "hang", SERVED, ""),
    ("wait", "killed", SERVED, ""),
    ("logs", "hang", SERVED, ""),
    ("logs", "garbage", SERVED, ""),
    ("top", "hang", SERVED, ""),
    ("top", "garbage", SERVED, ""),
]


def named(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{case[1].splitlines()[0]}-{case[2] or 'served'}"


@pytest.mark.parametrize(("verb", "how", "code", "words"), STARTS, ids=map(named, STARTS))
async def test_podman_fails_while_an_engine_starts(
    open_box: Any, verb: str, how: str, code: str | None, words: str
) -> None:
    """A needed command fails the start with its reason; one that is only good to have does not."""
    async with open_box("a") as box:
        box.fault(verb, how)
        status, error = await box.chat("a")
        if code is SERVED:
            assert status == 200
            box.fix()
            await box.supervisor.stop(None)
        else:
            assert (status, error["code"]) == (400, code)
            assert words in error["message"]
            assert box.states() == {"a": "failed"}
        assert box.left() == set()
