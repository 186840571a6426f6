"""A stand-in for podman whose containers are processes, and which fails where a test says so.

State lives in the folder named by FAKE_PODMAN. A file `fault.VERB` there makes that verb misbehave: `hang`, an exit code
(`125`, with the file's other lines on stderr), `silent` (it does its work and loses its output), `garbage`, `killed`.
Every call is written to `calls`.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path(os.environ["FAKE_PODMAN"])
WITH_VALUE = {
    "--name", "--log-driver", "--log-opt", "--network", "--device", "--shm-size", "-v", "--tmpfs", "-e", "--label",
    "--entrypoint", "--filter", "--tail", "-t", "--interval", "--type", "--format",
}  # fmt: skip


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Flags with their values, and what follows them."""
    flags: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        flags.setdefault(flag, []).append(words.pop(0) if flag in WITH_VALUE else "")
    return flags, words


def fail(text: str, code: int = 125) -> None:
    """As podman says it."""
    sys.stderr.write(f"Error: {text}\n")
    sys.exit(code)


def place(name: str) -> Path:
    """A container's folder, by name or id."""
    found = [each for each in FOLDER.glob("c/*") if name in (each.name, facts(each)["Id"])]
    if not found:
        fail(f'no container with name or ID "{name}" found: no such container')
    return found[0]


def facts(folder: Path) -> dict:
    """What `inspect` tells."""
    told = json.loads((folder / "inspect").read_text())
    if (folder / "exit").exists():
        told["State"] = {"Status": "exited", "ExitCode": int((folder / "exit").read_text()), "Pid": 0}
    return told


def run(words: list[str]) -> None:
    """Start the program in a session of its own, with someone beside it who notes its exit code."""
    flags, (_image, *rest) = parsed(words)
    (name,) = flags["--name"]
    folder = FOLDER / "c" / name
    folder.mkdir(parents=True)
    env = dict(each.partition("=")[::2] for each in flags.get("-e", []))
    identity = os.urandom(32).hex()
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    if not os.fork():
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        monitor(folder, [flags["--entrypoint"][0], *rest], {**os.environ, **env})
    while not (folder / "pid").exists():
        time.sleep(0.002)
    told = {
        "Id": identity,
        "Name": name,
        "ImageName": _image,
        "Config": {"Labels": dict(each.split("=", 1) for each in flags["--label"])},
        "State": {"Status": "running", "Pid": int((folder / "pid").read_text()), "StartedAt": time.strftime("%FT%TZ", time.gmtime())},
    }  # fmt: skip
    (folder / "inspect.new").write_text(json.dumps(told))
    (folder / "inspect.new").rename(folder / "inspect")
    print(identity)


def monitor(folder: Path, argv: list[str], env: dict[str, str]) -> None:
    """Its parent: podman's conmon."""
    child = os.fork()
    if not child:
        os.setsid()
        try:
            os.execvpe(argv[0], argv, env)
        except OSError:
            os._exit(127)
    (folder / "pid.new").write_text(str(child))
    (folder / "pid.new").rename(folder / "pid")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if folder.exists():
        (folder / "exit.new").write_text(str(code if code >= 0 else 128 - code))
        (folder / "exit.new").rename(folder / "exit")
    os._exit(0)


def kill(folder: Path, number: int) -> None:
    """The container's process; its group with SIGKILL."""
    pid = int((folder / "pid").read_text())
    with suppress(ProcessLookupError):
        os.killpg(pid, number) if number == signal.SIGKILL else os.kill(pid, number)


def ended(folder: Path, limit: float) -> bool:
    """Wait for its end."""
    until = time.monotonic() + limit
    while not (over := (folder / "exit").exists()) and folder.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return over or not folder.exists()


def stop(words: list[str]) -> None:
    """SIGTERM, then SIGKILL after the grace."""
    flags, (name,) = parsed(words)
    folder = place(name)
    kill(folder, signal.SIGTERM)
    if not ended(folder, float(flags["-t"][0])):
        kill(folder, signal.SIGKILL)
        ended(folder, 5)
    print(name)


def rm(words: list[str]) -> None:
    """By force."""
    _, (name,) = parsed(words)
    folder = place(name)
    kill(folder, signal.SIGKILL)
    ended(folder, 5)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    print(name)


def inspect(words: list[str]) -> None:
    """A JSON array."""
    _, names = parsed(words)
    print(json.dumps([facts(place(name)) for name in names]))


def ps(words: list[str]) -> None:
    """Ids by label."""
    flags, _ = parsed(words)
    wanted = dict(
        each.removeprefix("label=").split("=", 1) for each in flags.get("--filter", []) if each.count("=") > 1
    )
    for folder in FOLDER.glob("c/*"):
        if (folder / "inspect").exists() and wanted.items() <= facts(folder)["Config"]["Labels"].items():
            print(facts(folder)["Id"])


def wait(words: list[str]) -> None:
    """Its exit code."""
    _, (name,) = parsed(words)
    folder = place(name)
    while not ended(folder, 60):
        pass
    print((folder / "exit").read_text() if (folder / "exit").exists() else "")


def logs(words: list[str]) -> None:
    """What it wrote."""
    flags, (name,) = parsed(words)
    folder = place(name)
    with (folder / "log").open() as log:
        over = False
        while not over:
            over = "--follow" not in flags or ended(folder, 0.02)
            sys.stdout.write(log.read())
            sys.stdout.flush()


def top(words: list[str]) -> None:
    """Its one process."""
    folder = place(words[0])
    if (folder / "exit").exists():
        fail("top can only be used on running containers")
    print("HPID", (folder / "pid").read_text(), sep="\n")


def image(words: list[str]) -> None:
    """All but one exist."""
    sys.exit(1 if "missing" in words[-1] else 0)


def version(_words: list[str]) -> None:
    """A recent one."""
    print("5.0.0")


def misbehave(how: list[str]) -> None:
    """What the test asked for; returns when the work is to be done all the same."""
    if how[0] == "hang":
        time.sleep(600)
    elif how[0] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how[0] == "garbage":
        print('{"Id": [not json\x00\x1b[31m')
        sys.exit(0)
    elif how[0] == "silent":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
    else:
        sys.stderr.write("\n".join(how[1:]))
        sys.exit(int(how[0]))


words = [word for word in sys.argv[1:] if not word.startswith("--log-level")]
with (FOLDER / "calls").open("a") as calls:
    calls.write(" ".join(words) + "\n")
fault = FOLDER / f"fault.{words[0]}"
if fault.exists():
    misbehave(fault.read_text().splitlines())
globals()[words[0]](words[1:])
