"""The verbs of the stand-in for podman that change something or wait; podman.sh, which calls it, tells of the whole.

A container's folder holds `id`, `labels`, `facts` and `state` (for `inspect`), `pid` and `log`, and `exit` once it has ended.
What a shell reads of it is one line, and is there whole or not at all. Nothing is imported that takes as long as Python's own start.
"""

import os
import sys
import time

CONTAINERS = os.path.join(os.environ["FAKE_PODMAN"], "c")
SIGKILL, SIGTERM = 9, 15
WITH_VALUE = {
    "--name", "--log-driver", "--log-opt", "--network", "--device", "--shm-size", "-v", "--tmpfs", "-e", "--label",
    "--entrypoint", "--tail", "-t", "--interval",
}  # fmt: skip


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Flags with their values, and what follows them."""
    flags: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        flags.setdefault(flag, []).append(words.pop(0) if flag in WITH_VALUE else "")
    return flags, words


def place(name: str) -> str:
    folder = os.path.join(CONTAINERS, name)
    if not os.path.isdir(folder):
        sys.stderr.write(f'Error: no container with name or ID "{name}" found: no such container\n')
        sys.exit(125)
    return folder


def read(folder: str, what: str) -> str:
    with open(os.path.join(folder, what)) as file:
        return file.read().strip()


def put(folder: str, what: str, text: str) -> None:
    """Write one of its files, which others see whole or not at all."""
    path = os.path.join(folder, what)
    with open(path + ".new", "w") as file:
        file.write(text + "\n")
    os.rename(path + ".new", path)


def run(words: list[str]) -> None:
    """Start the program in a session of its own, with someone beside it who notes its exit code."""
    import json

    flags, (image, *rest) = parsed(words)
    (name,) = flags["--name"]
    folder = os.path.join(CONTAINERS, name)
    try:
        os.makedirs(folder)
    except FileExistsError:
        sys.stderr.write(f'Error: creating container storage: the container name "{name}" is already in use by x\n')
        sys.exit(125)
    env = dict(each.partition("=")[::2] for each in flags.get("-e", []))
    log = os.open(os.path.join(folder, "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    told, tell = os.pipe()
    if not os.fork():
        os.close(told)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        monitor(folder, tell, [flags["--entrypoint"][0], *rest], {**os.environ, **env})
    os.close(tell)
    os.read(told, 1)  # its end: the program runs
    identity = os.urandom(32).hex()
    labels = dict(each.split("=", 1) for each in flags["--label"])
    facts = {"Id": identity, "Name": name, "ImageName": image, "Config": {"Labels": labels}}
    state = {"Status": "running", "Pid": int(read(folder, "pid")), "StartedAt": time.strftime("%FT%TZ", time.gmtime())}
    put(folder, "id", identity)
    put(folder, "labels", f"|{'|'.join(flags['--label'])}|")
    put(folder, "state", json.dumps(state))
    put(folder, "facts", json.dumps(facts)[1:-1])  # the last: now it is there
    print(identity)


def monitor(folder: str, tell: int, argv: list[str], env: dict[str, str]) -> None:
    child = os.fork()
    if not child:
        os.close(tell)
        os.setsid()
        try:
            os.execvpe(argv[0], argv, env)
        except OSError:
            os._exit(127)
    put(folder, "pid", str(child))
    os.close(tell)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if os.path.isdir(folder):
        put(folder, "exit", str(code if code >= 0 else 128 - code))
    os._exit(0)


def kill(folder: str, number: int) -> None:
    """The container's process; its group with SIGKILL."""
    pid = int(read(folder, "pid"))
    try:
        os.killpg(pid, number) if number == SIGKILL else os.kill(pid, number)
    except ProcessLookupError:
        pass


def ended(folder: str, limit: float) -> bool:
    until = time.monotonic() + limit
    while not (over := os.path.exists(folder + "/exit")) and os.path.isdir(folder) and time.monotonic() < until:
        time.sleep(0.01)
    return over or not os.path.isdir(folder)


def stop(words: list[str]) -> None:
    """SIGTERM, then SIGKILL after the grace."""
    flags, (name,) = parsed(words)
    folder = place(name)
    kill(folder, SIGTERM)
    if not ended(folder, float(flags["-t"][0])):
        kill(folder, SIGKILL)
        ended(folder, 5)
    print(name)


def rm(words: list[str]) -> None:
    _, (name,) = parsed(words)
    folder = place(name)
    kill(folder, SIGKILL)
    ended(folder, 5)
    gone = f"{CONTAINERS}.gone.{os.getpid()}"
    os.rename(folder, gone)  # whole, as others may look at it
    for file in os.listdir(gone):
        os.unlink(os.path.join(gone, file))
    os.rmdir(gone)
    print(name)


def wait(words: list[str]) -> None:
    _, (name,) = parsed(words)
    folder = place(name)
    while not ended(folder, 60) or os.path.exists(f"{CONTAINERS[:-1]}fault.every"):  # by then it may hang
        time.sleep(0.01)
    try:
        print(read(folder, "exit"))
    except FileNotFoundError:  # it was removed
        print()


def logs(words: list[str]) -> None:
    flags, (name,) = parsed(words)
    folder = place(name)
    with open(folder + "/log") as log:
        over = False
        while not over:
            over = "--follow" not in flags or ended(folder, 0.02)
            sys.stdout.write(log.read())
            sys.stdout.flush()


def version(_words: list[str]) -> None:
    print("5.0.0")


globals()[sys.argv[1]](sys.argv[2:])
