"""Runtime of engines as plain processes, for boxes without containers and for the demo.

Each leads a session of its own, writes to a file and not to a pipe (engines outlive the daemon), and has a record in
the state folder.
"""

import asyncio
import contextlib
import errno
import os
import platform
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.domain.container import (
    LABEL_OWNER,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    Leftovers,
    PullProgress,
    engine_mark,
)
from sparkdash.errors import HostError
from sparkdash.host.command import LineSplitter, run_command
from sparkdash.host.log_limit import open_at
from sparkdash.host.processes import ending, leftovers, proc
from sparkdash.host.thread import in_thread
from sparkdash.paths import read_small_file
from sparkdash.redaction import MASK, is_secret_variable, masked
from sparkdash.units import duration, one_line

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class ProcessRecord(Frozen):
    """Started process. `birth` is its `proc.birth`, which no later process has."""

    name: str
    pid: int
    birth: str
    labels: dict[str, str]
    argv: tuple[str, ...]
    stop_signal: str | None = None
    """Name of the signal that asks it to end; None: SIGTERM."""
    started_at: float
    """Unix seconds."""
    ended: bool = False
    exit_code: int | None = None
    """Exit code; None while the process runs, and for another's child."""


def unwritable(folder: Path, error: OSError) -> HostError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "Make room on its disk." if full else "Make it writable, or choose another with SPARKDASH_STATE_DIR."
    code = "disk_full" if full else "state_unwritable"
    return HostError(f"Nothing can be written in {folder}: {error.strerror}.", code=code, hint=hint)


class ProcessRecords:
    """Folder of records. Only their owner may read the files, as an argv may hold secrets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str) -> ProcessRecord | None:
        """Read the record of that name; None if it is missing or damaged."""
        try:
            return ProcessRecord.model_validate_json(read_small_file(self._file(name)))
        except (OSError, ValidationError):
            return None

    def all(self) -> list[ProcessRecord]:
        found = (self.get(file.stem) for file in sorted(self._folder.glob("*.json")))
        return [record for record in found if record]

    def put(self, record: ProcessRecord) -> None:
        """Write a record, whole or not at all. Raises HostError if that fails."""
        file, fresh = self._file(record.name), self._file(record.name, "new")
        try:
            fresh.touch(mode=0o600)
            fresh.write_text(record.model_dump_json(indent=1))
            fresh.replace(file)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise unwritable(self._folder, error) from None

    def forget(self, name: str) -> None:
        """Remove record and log. Idempotent."""
        self._file(name).unlink(missing_ok=True)
        self.log(name).unlink(missing_ok=True)
        self.cid(name).unlink(missing_ok=True)

    def prepare(self) -> None:
        """Make the folder. Raises HostError if that fails."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self._folder, error) from None

    def logs(self) -> list[Path]:
        return list(self._folder.glob("*.log"))

    def log(self, name: str) -> Path:
        return self._file(name, "log")

    def cid(self, name: str) -> Path:
        """File in which `docker run --cidfile` writes the id of the container that it runs for the process."""
        return self._file(name, "cid")

    def _file(self, name: str, kind: str = "json") -> Path:
        if not _NAME.fullmatch(name):
            raise HostError(
                f"{name!r} cannot be the name of a process.", code="bad_name", hint="Letters, digits, . _ -"
            )
        return self._folder / f"{name}.{kind}"


UNKNOWN_EXIT = -1
"""Exit code of another's child, as the kernel reports the code to the parent only."""
KILLED_S = 10.0
"""Time for a process to end after SIGKILL."""
LOG_POLL_S = 0.15
"""Interval of reading a followed log; faster than an eye."""

SAID = 400
"""Last characters of a failed command's output that its error repeats."""

CID_FILE = "{cidfile}"
"""Word of a command for the file of `ProcessRecords.cid`."""
PREPARE_S = 3600.0
"""Deadline of a command that prepares a start; it may copy weights, and the old engine serves meanwhile."""

_CHUNK = 65536


class Process:
    """Runtime without containers. A later daemon adopts its engines by the records and logs in `folder`."""

    name = "process"
    containerised = False

    def __init__(self, folder: Path) -> None:
        self._records = ProcessRecords(folder)

    async def version(self) -> str:
        """Return the kernel's release, as there is no runtime with a version."""
        return platform.release()

    async def image_id(self, image: str) -> str | None:  # noqa: ARG002 - the protocol's
        return ""

    async def images(self, names: Collection[str]) -> dict[str, int]:  # noqa: ARG002 - the protocol's
        return {}

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        yield PullProgress(image=image, detail="a process needs no image", fraction=1.0, done=True)

    async def command(self, spec: ContainerSpec) -> list[str]:
        """Return the argv, behind `env` if the spec sets variables, for a person to type."""
        variables = [f"{key}={MASK if is_secret_variable(key) else value}" for key, value in spec.env.items()]
        return [*(["env", *variables] if variables else []), *spec.argv]

    def holds(self, name: str) -> bool:
        return self._records.get(name) is not None

    async def check_start(self, spec: ContainerSpec) -> None:
        for word in (*spec.prepare[:1], spec.argv[0]):
            if shutil.which(word, path=spec.env.get("PATH")) is None:
                raise _no_program(spec.replace(argv=(word,)), "No such file or directory")
        if spec.prepare:
            await _prepare(spec)

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Start a process in a session of its own. Raises HostError: command_missing, disk_full, state_unwritable."""
        await self.stop(spec.name, grace_s=KILLED_S)
        self._records.prepare()
        record = self._spawn(spec)
        try:
            self._records.put(record)
        except HostError:
            _signal_group(record.pid, signal.SIGKILL)
            await _ended(record, KILLED_S)
            _reap(record)
            self._records.forget(spec.name)
            raise
        return self._info(record)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        """Send the stop signal to the group, SIGKILL after the grace, then SIGKILL to the family; forget the record.

        The family is killed even after a graceful end: workers without their leader would keep their memory.
        """
        record = self._records.get(name)
        if record is None:
            return Leftovers()
        family = leftovers.births(self._family(record))
        if _alive(record):
            _signal_group(record.pid, signal.Signals[record.stop_signal or "SIGTERM"])
            if not await _ended(record, grace_s):
                _signal_group(record.pid, signal.SIGKILL)
                if not await _ended(record, KILLED_S):
                    raise ending.unkillable_error(name, {record.pid}, KILLED_S)
        left = await ending.end_processes(family | leftovers.births(self._family(record)) | await _marked(record))
        self._settled(record)
        if before_removal is not None:
            await before_removal
        self._records.forget(name)
        return left

    async def settle(self, owner: str) -> Leftovers:
        """End processes without a record, which a daemon killed during a start leaves behind. See Runtime."""
        found = await asyncio.to_thread(leftovers.processes_of_owner, owner)
        held = {engine_mark(owner, record.name) for record in self._records.all() if _alive(record)}
        return await ending.end_processes(leftovers.processes_except(found, held))

    async def inspect(self, name: str) -> ContainerInfo | None:
        record = self._records.get(name)
        return None if record is None else self._info(self._settled(record))

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        return [
            self._info(self._settled(record))
            for record in self._records.all()
            if all(key in record.labels and value in ("", record.labels[key]) for key, value in labels.items())
        ]

    async def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        record = self._records.get(name)
        if record is None:
            raise HostError(f"There is no process {name}.", code="no_such_container")
        try:
            log = open_at(self._records.log(name), tail)
        except OSError as error:  # the owner may have deleted it to make room
            raise HostError(f"The log of {name} cannot be read: {error.strerror}.", code="no_log") from None
        splitter = LineSplitter()
        with log as file:
            last = False
            while not last:
                last = not (follow and _alive(record))  # before reading, so that no later line is missed
                if os.fstat(file.fileno()).st_size < file.tell():  # it was emptied
                    file.seek(0)
                while chunk := file.read(_CHUNK):
                    for line in splitter.feed(chunk):
                        yield line
                if not last:
                    await _ended(record, LOG_POLL_S)
        for line in splitter.rest():
            yield line

    def log_files(self) -> list[Path]:
        return self._records.logs()

    async def wait(self, name: str) -> int:
        """Wait for the end; return the exit code (128 + signal after a kill), or -1 if it is unknown."""
        record = self._records.get(name)
        if record is None:
            return UNKNOWN_EXIT
        await _ended(record, None)
        code = self._settled(self._latest(record)).exit_code
        return UNKNOWN_EXIT if code is None else code

    async def pids(self, name: str) -> set[int]:
        record = self._records.get(name)
        if record is None or not _alive(record):
            return set()
        # all of /proc is read: 20 µs a process, 0.1 s on a box with 5,000
        return await in_thread(lambda: self._family(record))

    def _spawn(self, spec: ContainerSpec) -> ProcessRecord:
        """Start by posix_spawn: asyncio and Popen would end the child with the daemon, or warn that it lives on."""
        log, cid = str(self._records.log(spec.name)), str(self._records.cid(spec.name))
        try:
            pid = os.posix_spawnp(
                spec.argv[0],
                [word.replace(CID_FILE, cid) for word in spec.argv],
                {**os.environ, **spec.env},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them, and children would inherit that
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in a word, a variable's name with "="
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # its log
                raise unwritable(self._records.log(spec.name).parent, error) from None
            raise _no_program(spec, str(error.strerror if isinstance(error, OSError) else error)) from None
        return ProcessRecord(
            name=spec.name,
            pid=pid,
            birth=proc.birth(pid) or "",
            labels=spec.labels,
            argv=spec.argv,
            stop_signal=spec.stop_signal,
            started_at=time.time(),
        )

    def _latest(self, record: ProcessRecord) -> ProcessRecord:
        """Return the current record, unless it was forgotten or the name belongs to another process."""
        now = self._records.get(record.name)
        return now if now and now.birth == record.birth else record

    def _settled(self, record: ProcessRecord) -> ProcessRecord:
        """Return the record, with its end written once the process has ended; only the parent learns the exit code."""
        if record.ended or _alive(record):
            return record
        ended = record.replace(ended=True, exit_code=_reap(record))
        if self._records.get(record.name) == record:
            with contextlib.suppress(HostError):  # a full disk; the end is noticed again
                self._records.put(ended)
        return ended

    def _info(self, record: ProcessRecord) -> ContainerInfo:
        return ContainerInfo(
            id=f"{record.pid}-{record.birth.rpartition(':')[2]}",
            name=record.name,
            state=ContainerState.EXITED if record.ended else ContainerState.RUNNING,
            labels=record.labels,
            exit_code=record.exit_code,
            pid=None if record.ended else record.pid,
            started_at=record.started_at,
        )

    def _family(self, record: ProcessRecord) -> set[int]:
        """Living processes of the record, also those that outlived their leader while its pid is not reused."""
        now = proc.birth(record.pid)
        same_boot = record.birth.startswith(f"{proc.boot()}:")
        if now != record.birth and (now is not None or not same_boot):
            return set()
        with suppress(OSError):
            container = read_small_file(self._records.cid(record.name)).decode(errors="replace").strip()
            return proc.family(record.pid) | leftovers.processes_in_containers([container])[container]
        return proc.family(record.pid)


def _alive(record: ProcessRecord) -> bool:
    found = proc.stat(record.pid)
    return found is not None and not found.ended and f"{proc.boot()}:{found.ticks}" == record.birth


async def _ended(record: ProcessRecord, limit_s: float | None) -> bool:
    return await ending.wait_until_gone(record.pid, record.birth, limit_s)


async def _marked(record: ProcessRecord) -> leftovers.Births:
    return await ending.scan_for_engine(engine_mark(record.labels.get(LABEL_OWNER, ""), record.name))


def _reap(record: ProcessRecord) -> int | None:
    if proc.birth(record.pid) != record.birth:
        return None
    try:
        pid, status = os.waitpid(record.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if not pid:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


async def _prepare(spec: ContainerSpec) -> None:
    """Run the command that prepares a start. Raises HostError: it failed, or took too long."""
    try:
        done = await run_command(spec.prepare, deadline_s=PREPARE_S, env={**os.environ, **spec.env})
        why = f"ended with {done.code}: {masked(one_line((done.err or done.out).strip()[-SAID:]))}" if done.code else ""
    except TimeoutError:
        why = f"took more than {duration(PREPARE_S)}"
    except (OSError, ValueError) as error:
        why = f"could not be run: {error}"
    if why:
        text = f"{spec.name} is not started: {spec.prepare[0]}, which prepares it, {why}."
        raise HostError(text, code="prepare_failed", hint="Correct `starter.prepare` in the profile.")


def _no_program(spec: ContainerSpec, why: str) -> HostError:
    return HostError(
        f"{spec.name} could not start: {spec.argv[0]}: {why}.",
        code="command_missing",
        hint="Install the engine, or correct `command` or `starter` in the profile.",
    )
