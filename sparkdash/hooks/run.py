"""Running one hook: a command with the event on its standard input, or a POST with the event as its body.

Owns: the small environment, the time limit, and the words of a failure. Must not know which events there are. Rule: a
command gets no variable of the daemon's but those in PASSED, as tokens and keys stand in its environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from sparkdash.errors import HostError, UpstreamError
from sparkdash.hooks.events import HookEvent
from sparkdash.settings import Hook
from sparkdash.units import duration
from sparkdash.upstream import Upstream, encode_headers

PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY")
"""Variables that programs need to find others, and to show something on the desktop."""
WORDS = 500
"""Bytes of a failing command's words, or of a webhook's answer, that are kept."""
_JSON = encode_headers([(b"Content-Type", b"application/json"), (b"User-Agent", b"sparkdash-hook")])


async def run_hook(hook: Hook, event: HookEvent, upstream: Upstream) -> None:
    """Run a hook for an event, within its time limit.

    Raises:
        HostError: code `hook_failed`: it cannot be run, failed, or took too long.
    """
    body = event.model_dump_json().encode()
    try:
        async with asyncio.timeout(hook.timeout_s):
            if hook.url is not None:
                await _post(hook, body, upstream)
            else:
                await _command(hook, event, body)
    except TimeoutError:
        raise _failed(hook, f"took longer than {duration(hook.timeout_s)}") from None


async def _post(hook: Hook, body: bytes, upstream: Upstream) -> None:
    try:
        async with upstream.open("POST", hook.url or "", _JSON, body) as answer:
            said = await answer.read(WORDS)
            if answer.status >= 300:
                raise _failed(hook, f"answered {answer.status}: {said.decode('utf-8', 'replace')}")
    except UpstreamError as error:
        raise _failed(hook, f"did not answer: {error.message}") from None


async def _command(hook: Hook, event: HookEvent, body: bytes) -> None:
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    environment |= {"SPARKDASH_EVENT": event.event.value, "SPARKDASH_PROFILE": event.profile or ""}
    try:
        process = await asyncio.create_subprocess_exec(
            *hook.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _failed(hook, f"cannot be started: {getattr(error, 'strerror', None) or error}") from None
    try:
        said = await _spoken(process, body)
    finally:
        if process.returncode is None:
            _kill_group(process.pid)
            await process.wait()
    if process.returncode:
        raise _failed(hook, f"ended with {process.returncode}: {said}")


async def _spoken(process: asyncio.subprocess.Process, body: bytes) -> str:
    """Give the command its input; return the beginning of its complaints once it has ended."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    with suppress(ConnectionError):
        process.stdin.write(body)
        process.stdin.close()
    words = asyncio.create_task(_read(process.stderr), name="hook's words")
    try:
        await process.wait()
        _kill_group(process.pid)  # a child that stays would hold the pipe open
        return (await words).decode("utf-8", "replace").strip()
    finally:
        words.cancel()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


async def _read(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while piece := await stream.read(4096):
        kept = (kept + piece)[:WORDS]
    return kept


def _failed(hook: Hook, what: str) -> HostError:
    return HostError(
        f"The hook {hook.name} {what.strip().rstrip('.')}.",
        code="hook_failed",
        hint="`sparkdash hooks test` runs it again and shows what it says.",
    )
