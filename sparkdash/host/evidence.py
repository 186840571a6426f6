"""Evidence about a hanging engine, kept in a folder of its own before the engine is ended.

Four files: what was seen of the engine, the end of its log, Python's stacks (where py-spy is installed), and the
kernel's word with its memory. Secrets and prompts are left out; only the owner may read the folder.
"""

import asyncio
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sparkdash import __version__
from sparkdash.domain.engine import Evidence, EvidenceRequest
from sparkdash.host import command
from sparkdash.host.kernel_lines import KernelFindings
from sparkdash.host.kernel_log import NOT_READABLE, KernelLog
from sparkdash.host.processes.proc import PROC
from sparkdash.host.thread import in_thread
from sparkdash.limits import INCIDENTS
from sparkdash.log import LOG
from sparkdash.redaction import masked, masked_values
from sparkdash.units import one_line, printable

TAKE_S = 15.0
"""Time limit of all parts together; a part that is late is given up."""
DUMP_S = 3.0
"""Time limit of one dump; 60 threads take 60 ms."""
DUMP_LIMIT = 128 * 1024
"""Limit of one dump in bytes; 130 threads have 60 kB."""
DUMPED = 16
AT_ONCE = 4
FILE_LIMIT = 1 << 20
CUT = b"\n[cut here: the file is limited to 1 MiB]\n"
LOG_LINES = 200
LINE_LIMIT = 2000
"""Limit of a log line in characters."""
READ_LIMIT = 8192
"""Characters of a line that are searched."""
PROMPT_CUT = "[cut: it may hold a prompt]"
ABSENT = (
    "py-spy is not installed for the daemon's user, so Python's stacks are missing. "
    "`uv tool install py-spy` or `pipx install py-spy` provides it; sparkdash looks on PATH and in ~/.local/bin."
)
DENIED = (
    "The kernel does not let this user look into the process. An engine of root's podman needs root: "
    "`sudo py-spy dump --nonblocking --pid {pid}`. For an engine of this user set "
    "`sudo sysctl kernel.yama.ptrace_scope=0`."
)

_MEMORY = ("meminfo", "buddyinfo", "pressure/memory")
_FOLDER = re.compile(r"\d{8}T\d{6}Z-.*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80
"""Limit of a profile's name within a folder's name."""
_DENIED = re.compile(r"permission denied|operation not permitted|\bEPERM\b|\bEACCES\b", re.IGNORECASE)
_VERSION = re.compile(r"^Python v", re.MULTILINE)
_PYTHON = re.compile(r"python|^VLLM::|^sglang::", re.IGNORECASE)
_PROMPT = re.compile(
    r"prompt_?token_?ids|(?:token|input)_ids['\"]?\s*[=:]|SchedulerOutput\(|RequestData\(|ReqInput\("
    r"|\bprompts?['\"]?\s*[:=]|\b(?:text|messages|content|input|output|delta|arguments)\s*=\s*['\"\[{]"
    r"|['\"](?:messages|content|text|input|output|prompt|delta|arguments|system)['\"]\s*:"
    r"|\b(?:request|response|output|input|message)s?:\s*['\"{\[]|parsed message|sampled token|next token:"
    r"|\btoken: \d+ =|generated text|Dumping (?:input|scheduler)",
    re.IGNORECASE,
)
"""Text before a prompt or an answer in the logs of vLLM (request logging, the dump after a failed step), SGLang
(request logging) and llama-server (verbose).
"""
_NEW_LINE = re.compile(
    r"(?:\([^)]{1,80}\)\s*)?(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)(?:\s+\d\d-\d\d|:)|\[\d{4}-\d\d-\d\d"
    r"|\d+\.\d\d\.\d{3}\.\d{3} [A-Z] |(?:srv|slot|que)\s+\S+: |(?:main|(?:llama|ggml|common|load)_\w+): "
)
"""Beginning of a logger's line; any other line continues the one before."""


class EvidenceTaker:
    """Takes evidence into folders below `parent`."""

    def __init__(self, parent: Path, log: KernelLog) -> None:
        self._parent = parent
        self._log = log

    async def take(self, request: EvidenceRequest) -> Evidence:
        """Take evidence of this engine now; raises only when cancelled, as a repair goes on without it."""
        at = time.time()
        try:
            folder = await in_thread(partial(create_folder, self._parent, request.profile, at))
        except OSError as error:
            problem = f"{self._parent} cannot be written: {_why(error)}"
            LOG.warning("no evidence can be kept", why=problem)
            return Evidence(None, f"No evidence was kept: {problem}.")
        problems = await self._take_parts(request, folder, at)
        with suppress(OSError):
            await in_thread(partial(forget_old, folder))
        if not problems:
            return Evidence(str(folder))
        missing = "; ".join(problems)
        LOG.warning("part of the evidence is missing", folder=str(folder), why=missing)
        return Evidence(str(folder), f"Part of the evidence is missing: {missing}.")

    async def _take_parts(self, request: EvidenceRequest, folder: Path, at: float) -> list[str]:
        since = at - 3600 if request.started_at is None else request.started_at
        parts: Mapping[str, Callable[[], Awaitable[str]]] = {
            "summary.json": lambda: in_thread(lambda: _summary(request, at)),
            "log.txt": lambda: in_thread(  # 200 long lines take 0.2 s
                lambda: "\n".join([*(log_lines(request.log) or ["The engine said nothing."]), ""])
            ),
            "stacks.txt": lambda: python_stacks(request.pids),
            "kernel.txt": lambda: _kernel_text(self._log, since),
        }
        tasks = {asyncio.create_task(_part(folder, name, make), name="evidence"): name for name, make in parts.items()}
        try:
            done, late = await asyncio.wait(tasks, timeout=TAKE_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        failed = [problem for task in done if (problem := task.result())]
        return failed + [f"{tasks[task]} took longer than {TAKE_S:g} s" for task in late]


async def _part(folder: Path, name: str, make: Callable[[], Awaitable[str]]) -> str | None:
    """Make and write one file; return what went wrong."""
    try:
        text = await make()
        await in_thread(lambda: write_file(folder, name, text))
    except Exception as error:  # noqa: BLE001 - one part must not cost the others
        return f"{name}: {_why(error)}"
    return None


def _summary(request: EvidenceRequest, at: float) -> str:
    about = {
        "profile": request.profile,
        "engine": request.kind.value,
        "engine_version": request.version,
        "fingerprint": request.fingerprint,
        "container": request.container,
        "pids": sorted(request.pids),
        "reason": request.reason,
        "taken_at": at,
        "engine_started_at": request.started_at,
        "sparkdash": __version__,
        "kernel": platform.release(),
        "driver": _text(PROC / "driver/nvidia/version").partition("\n")[0],
        "looks": list(request.looks),
    }
    return json.dumps(masked_values(about), indent=1, default=str) + "\n"


# The engine's log.


def log_lines(lines: Sequence[str]) -> list[str]:
    """Take the last lines of a log, without secrets; possible prompts are cut, with their continuation lines."""
    found: list[str] = []
    cutting = False
    for whole in lines:
        line = whole[:READ_LIMIT]
        if cutting and not _NEW_LINE.match(line):
            continue
        begins = _PROMPT.search(line)
        cutting = begins is not None
        clean = masked(line if begins is None else f"{line[: begins.start()]}{PROMPT_CUT}")  # half a token has no form
        found.append(one_line(clean if len(clean) <= LINE_LIMIT else f"{clean[:LINE_LIMIT]}…"))
    return found[-LOG_LINES:]


# Python's stacks.


async def python_stacks(pids: Collection[int]) -> str:
    """Dump the Python processes by py-spy, without pausing them; the reason in place of a missing dump."""
    named = {pid: _text(PROC / str(pid) / "comm").strip() for pid in sorted(pids)}
    chosen = [(pid, name) for pid, name in named.items() if _is_python(pid, name)][:DUMPED]
    if not chosen:
        return "No Python process was seen.\n"
    program = _found_py_spy()
    if program is None:
        return f"{ABSENT}\n"
    free = asyncio.Semaphore(AT_ONCE)

    async def dumped(pid: int, name: str) -> str:
        async with free:
            return f"== pid {pid} {one_line(name)}\n{await _dump(program, pid)}\n"

    return "\n".join(await asyncio.gather(*(dumped(pid, name) for pid, name in chosen)))


def _is_python(pid: int, name: str) -> bool:
    try:
        return bool(_PYTHON.search((PROC / str(pid) / "exe").readlink().name))
    except OSError:  # another user's
        return bool(_PYTHON.search(name))


def _found_py_spy() -> str | None:
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path("~/.local/bin").expanduser())])
    return shutil.which("py-spy", path=places)


async def _dump(program: str, pid: int) -> str:
    argv = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        text = await command.command_output(argv, deadline_s=DUMP_S, limit=DUMP_LIMIT)
    except TimeoutError:
        return f"py-spy gave no answer within {DUMP_S:g} s."
    except OSError as error:
        return f"py-spy cannot be run: {_why(error)}."
    version = _VERSION.search(text)
    body = text[version.start() :] if version else text  # its head repeats the command line with all its secrets
    said = printable(masked(body)).rstrip() or "py-spy said nothing."
    return f"{said}\n{DENIED.format(pid=pid)}" if _DENIED.search(said) and "Thread " not in said else said


# The kernel's word and its memory.


async def _kernel_text(log: KernelLog, since: float) -> str:
    lines = kernel_lines_text(await log.since(since), since)
    files = await in_thread(lambda: [f"== /proc/{name}\n{_text(PROC / name).rstrip()}\n" for name in _MEMORY])
    return "\n".join([lines, *files])


def kernel_lines_text(found: KernelFindings | None, since: float) -> str:
    head = f"== kernel log since {_utc(since)}"
    if found is None:
        return f"{head}\n{NOT_READABLE}\n"
    counts = ", ".join(f"{kind.value} {count}" for kind, count in found.counts.items())
    lines = [f"{_utc(line.at)} {one_line(line.text)}" for line in found.lines]
    return "\n".join([head, counts or "No line that matters.", *lines]) + "\n"


# Folders and files.


def create_folder(parent: Path, profile: str, at: float) -> Path:
    """Make a new folder that only its owner may read. Raises OSError."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    safe = _UNSAFE.sub("_", profile)[:_LONGEST].strip(".") or "_"
    base = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at))}-{safe}"
    for number in range(1, 100):
        made = parent / (f"{base}-{number}" if number > 1 else base)
        with suppress(FileExistsError):
            made.mkdir(mode=0o700)
            return made
    raise FileExistsError(f"{parent / base} and its successors exist")


def write_file(folder: Path, name: str, text: str) -> None:
    """Write one file, cut at FILE_LIMIT. Raises OSError."""
    content = text.encode("utf-8", "replace")
    if len(content) > FILE_LIMIT:
        content = content[: FILE_LIMIT - len(CUT)] + CUT
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def forget_old(newest: Path) -> None:
    """Remove the oldest folders beyond the limit, never `newest`. Raises OSError if listing fails."""
    folders = (each for each in newest.parent.iterdir() if _FOLDER.fullmatch(each.name) and not each.is_symlink())
    others = sorted(each for each in folders if each != newest)
    for old in others[: max(len(others) + 1 - INCIDENTS, 0)]:
        shutil.rmtree(old, ignore_errors=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"not readable: {error.strerror or error}"


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _why(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
