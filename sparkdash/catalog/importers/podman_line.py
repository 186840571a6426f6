"""Profiles from `podman run` and `docker run` command lines, and scripts of them. Only the text is read."""

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from sparkdash.catalog.importers import engine_line, values
from sparkdash.catalog.importers.engine_line import EnginePart
from sparkdash.catalog.importers.shell import Command, parse_commands
from sparkdash.catalog.importers.values import Imported, ImportNotes, import_refused
from sparkdash.domain.container import LABEL_PROFILE, LABEL_SERVES
from sparkdash.engines.containers import SHM_SIZE
from sparkdash.engines.nodes import RDMA_DEVICES
from sparkdash.errors import ProfileError
from sparkdash.redaction import is_secret_variable, masked

_REASONS = {
    "ipc": "the host's shared memory is not given away; shm_size does it",
    "net": "sparkdash always uses the host's network, on loopback",
    "network": "sparkdash always uses the host's network, on loopback",
    "publish": "sparkdash chooses the port; clients use the gateway",
    "restart": "sparkdash decides what runs; a crash loop of an engine can freeze the box",
    "rm": "the log of an engine that died must stay readable",
    "ulimit": "a profile has no limits; the runtime's own hold",
    "hooks-dir": "CDI hands the GPU in",
    "security-opt": "a profile changes no security settings",
    "runtime": "CDI hands the GPU in",
    "env-file": "it is not read; put what it holds under env, and secrets into the daemon's environment",
    "pull": "sparkdash pulls as a step of its own",
    "privileged": "no engine needs it for the GPU",
    "log-driver": "sparkdash sets it",
    "log-opt": "sparkdash sets it",
    "label": "sparkdash sets its own labels",
}
"""Why a profile leaves a flag out."""
SILENT = {"detach", "replace", "interactive", "tty", "init"}
"""Flags that an import drops without a remark."""
_BARE = {
    "detach", "interactive", "tty", "init", "privileged", "rm", "read-only", "publish-all", "no-healthcheck",
    "tls-verify", "replace", "quiet", "oom-kill-disable", "no-hosts",
}  # fmt: skip
_SHORT = {
    "d": "detach", "i": "interactive", "t": "tty", "v": "volume", "e": "env", "p": "publish", "l": "label",
    "w": "workdir", "u": "user", "h": "hostname", "m": "memory", "P": "publish-all", "q": "quiet",
}  # fmt: skip


def split_options(words: list[str], notes: ImportNotes) -> tuple[list[tuple[str, str | None]], int]:
    """Return the runtime's flags with their values, and the index of the image."""
    options: list[tuple[str, str | None]] = []
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        word = words[index]
        read = _long if word.startswith("--") else _short
        index = read(word, words, index + 1, options, notes)
    return options, index + (words[index : index + 1] == ["--"])


def _long(word: str, words: list[str], index: int, options: list[tuple[str, str | None]], notes: ImportNotes) -> int:
    """Parse a long flag such as `--name x` or `--name=x`; return the next index."""
    key, equals, value = word[2:].partition("=")
    if equals or key in _BARE or index >= len(words):
        options.append((key, value if equals else None))
        return index
    if words[index].startswith("-"):
        notes.unknown(word)
        return index
    options.append((key, words[index]))
    return index + 1


def _short(word: str, words: list[str], index: int, options: list[tuple[str, str | None]], _notes: ImportNotes) -> int:
    """Parse short flags such as `-it`, `-v a:b`, `-p8000:8000`; return the next index."""
    for at, letter in enumerate(word[1:], start=1):
        key = _SHORT.get(letter, letter)
        if key in _BARE:
            options.append((key, None))
        elif rest := word[at + 1 :]:
            options.append((key, rest.removeprefix("=")))
            return index
        else:
            options.append((key, words[index] if index < len(words) else None))
            return index + 1
    return index


def note_left_out(key: str, value: str | None, notes: ImportNotes) -> None:
    """Note a flag that has no key in a profile, with the reason where one is known."""
    if key == "device" and value and value.startswith(RDMA_DEVICES):
        notes.dropped(f"--{key} {value}", "a profile for several nodes gets it where the box has RDMA")
    elif reason := _REASONS.get(key):
        what = f"--{key}" if value is None or key == "label" else f"--{key} {value}"
        notes.dropped(what, reason)
    else:
        flag = f"--{key}" if len(key) > 1 else f"-{key}"
        what = flag if value is None or is_secret_variable(key.replace("-", "_")) else f"{flag} {masked(value)}"
        notes.unknown(what, "a profile has no key for it; left out")


_LABEL = f"{LABEL_PROFILE}="
_ALIASES = f"{LABEL_SERVES}="
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_PLACE = "/sparkdash/"
"""Prefix of sparkdash's own caches in a container."""
_OWN_VARIABLES = ("LLAMA_ARG_LOAD_MODE=none", "LLAMA_ARG_NO_MMAP=1")
"""Variables that sparkdash itself sets for a llama-server, and that an import therefore drops."""


def container_fields(options: list[tuple[str, str | None]], notes: ImportNotes) -> dict[str, Any]:
    """Make the keys of a profile that the runtime's flags set; the others are named in `notes`."""
    made: dict[str, Any] = {"env": {}, "env_from": [], "mounts": [], "tmpfs": [], "gpu": False}
    for key, value in options:
        if _gpu(key, value):
            made["gpu"] = True
            continue
        carried = bool(value and _carry(key, value, made, notes))
        if not carried and key not in SILENT:
            note_left_out(key, value, notes)
    if made["gpu"]:
        del made["gpu"]
    else:
        notes.note("gpu: false", "the command hands no GPU in")
    return made


def _carry(key: str, value: str, made: dict[str, Any], notes: ImportNotes) -> bool:
    """Add what the flag sets to the profile's keys; return False for a flag without one."""
    if key == "name":
        made["name"] = made.get("name") or value
    elif key == "label":
        _labelled(key, value, made, notes)
    elif key == "entrypoint":  # podman takes a JSON list, or one program
        listed = values.typed_value(value)
        made["entrypoint"] = list(map(str, listed)) if isinstance(listed, list) else [value]
    elif key == "shm-size":
        made["shm_size"] = value
    elif key == "tmpfs":
        made["tmpfs"].append(value)
    elif key == "env":
        add_variable(value, made, notes)
    elif key in ("volume", "mount"):
        _mount(key, value, made, notes)
    else:
        return False
    return True


def _labelled(key: str, value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    if value.startswith(_LABEL):
        made["name"] = value.removeprefix(_LABEL)
    elif value.startswith(_ALIASES):
        made["names"] = value.removeprefix(_ALIASES).split(",")
    elif not value.startswith("sparkdash."):
        note_left_out(key, value, notes)


def _gpu(key: str, value: str | None) -> bool:
    return key == "gpus" or (key == "device" and "nvidia" in (value or "")) or (key, value) == ("runtime", "nvidia")


def add_variable(value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    """Add `NAME=text` or `NAME` to `made`; only by its name when the value is a reference or a secret."""
    name, equals, text = value.partition("=")
    if text.startswith(_OWN_PLACE) or value in _OWN_VARIABLES:
        return
    if _VARIABLE.fullmatch(name) and (not equals or text in (f"${name}", f"${{{name}}}")):
        made["env_from"].append(name)
        notes.note(f"-e {name}", "taken from the daemon's environment at the start; its value was not looked up")
    elif _VARIABLE.fullmatch(name) and is_secret_variable(name):
        made["env_from"].append(name)
        notes.dropped(f"-e {name}", values.NO_SECRETS)
    elif equals and name[:1] not in ("", "$"):
        made["env"][name] = text
    else:
        notes.unknown(f"-e {name}")


def _mount(key: str, value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    mount = _volume(value) if key == "volume" else _long_mount(value)
    if mount is None:
        notes.unknown(f"--{key} {value}", "only a folder of the host at a place in the container is understood")
    elif not mount["target"].startswith(_OWN_PLACE):
        mount["source"] = values.in_home(mount["source"])
        if "$" in mount["source"]:
            notes.note(mount["source"], "a folder with a variable in it; write the real one")
        made["mounts"].append(mount)


def _volume(value: str) -> dict[str, Any] | None:
    begin = max(value.find("}"), 0) if value.startswith("${") else 0  # `${NAME:-/folder}` has a colon of its own
    head, _, rest = value[begin:].partition(":")
    target, _, mode = rest.partition(":")
    source = value[:begin] + head
    if not target or not source.startswith(("/", "~", "$", ".")):
        return None
    return _as_mount(source, target, read_only="ro" in mode.split(","))


def _long_mount(value: str) -> dict[str, Any] | None:
    parts = dict(part.partition("=")[::2] for part in value.split(","))
    source = parts.get("source") or parts.get("src")
    target = parts.get("target") or parts.get("dst") or parts.get("destination")
    if parts.get("type", "bind") != "bind" or not source or not target:
        return None
    return _as_mount(source, target, read_only=bool({"readonly", "ro"} & set(parts)))


def _as_mount(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    mount: dict[str, Any] = {"source": source, "target": target}
    return mount if read_only else mount | {"read_only": False}


def fill_from_script(container: dict[str, Any], exported: Mapping[str, str], notes: ImportNotes) -> None:
    """Give `-e NAME` the text that the script exports under that name, unless it is a secret."""
    for name in [name for name in container["env_from"] if name in exported and not is_secret_variable(name)]:
        container["env_from"].remove(name)
        container["env"][name] = exported[name]
        notes.rewritten(f"-e {name}", "with the text that the script itself exports")


RUNTIMES = ("podman", "docker", "nerdctl")

_HARMLESS = frozenset({
    "set", "echo", "printf", "cd", "mkdir", "sleep", "true", "false", "exit", "return", "trap", "shift", "fi",
    "done", "esac", "}", "wait", "read", "test", "[", "[[", ":", "shopt", "ulimit", "umask", "clear", "date",
    "continue", "break",
})  # fmt: skip
"""Commands whose absence changes nothing for the engine."""
_LIKELY = re.compile(r"vllm|sglang|llama|trtllm|tensorfold|podman|docker|nerdctl")


def import_podman_line(text: str, name: str | None = None) -> Imported:
    """Import each container command of a script, and each engine command outside of one. Raises ProfileError."""
    notes = ImportNotes()
    commands = parse_commands(text, notes)
    profiles = import_commands(commands, notes, name)
    if not profiles:
        like = nearest(" ".join(one.words) for one in commands)
        skipped = " The text of a here-document (<<) is not read." if re.search(r"(?<!<)<<(?!<)", text) else ""
        raise import_refused(
            f"No command in the input starts an engine that sparkdash knows.{like}{skipped}",
            "Looked for podman run, docker run, vllm serve, sglang.launch_server, llama-server and trtllm-serve.",
        )
    return notes.imported("command line", *number_duplicates(profiles))


def import_commands(commands: list[Command], notes: ImportNotes, name: str | None = None) -> list[dict[str, Any]]:
    """Import every command that starts an engine; other ones that do something are named in `notes`."""
    found: list[dict[str, Any]] = []
    others: list[Command] = []
    failed: ProfileError | None = None
    for command in commands:
        try:
            made = import_command(command, notes, name)
        except ProfileError as error:
            failed = failed or error
            notes.unknown(" ".join(command.words), f"{error.message} Left out.")
            continue
        found += [made] if made else []
        others += [] if made else [command]
    if failed and not found:
        raise failed
    for command in others if found else ():
        _note_step(command.words, notes)
    return found


def _note_step(words: list[str], notes: ImportNotes) -> None:
    if words[0] in (".", "source"):
        notes.dropped(" ".join(words), "another script, which is not read; write what it sets")
    elif words[0] == "ray":
        notes.dropped(" ".join(words), "sparkdash starts Ray on each box itself")
    elif PurePosixPath(words[0]).name not in _HARMLESS and words[-1] != "]]":
        notes.dropped(" ".join(words), "a step beside the engine, which sparkdash does not run; put it into the image")


def nearest(lines: Iterable[str]) -> str:
    """Name the line that looks most like an engine's, in a sentence; "" without any."""
    likely = [" ".join(line.split()) for line in lines if _LIKELY.search(line)]
    likely.sort(key=lambda line: re.match(r"\S*(docker|podman) run ", line) is None)
    return f" The nearest was: {likely[0][:120]}" if likely else ""


def rename(profile: dict[str, Any], name: str) -> None:
    """Give the profile another name; its old one, which clients may use, becomes an alias."""
    old, profile["profile"] = profile["profile"], name
    profile["serves"] = [one for one in dict.fromkeys([old, *profile.get("serves", [])]) if one != name]


def number_duplicates(profiles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number duplicate names; an alias stays with the first profile that has it."""
    seen: set[str] = set()
    for profile in profiles:
        base, count = profile["profile"], 1
        while profile["profile"] in seen:
            count += 1
            profile["profile"] = f"{base}-{count}"
        seen.add(profile["profile"])
    for profile in profiles:
        free = [alias for alias in dict.fromkeys(profile.get("serves", [])) if alias not in seen]
        seen.update(free)
        if free:
            profile["serves"] = free
        else:
            profile.pop("serves", None)
    return profiles


def import_command(command: Command, notes: ImportNotes, name: str | None = None) -> dict[str, Any] | None:
    """Import one command; None when it starts no engine."""
    words = command.words
    program = PurePosixPath(words[0]).name
    if program in RUNTIMES:
        rest = words[2:] if words[1:2] == ["container"] else words[1:]
        if rest[:1] in (["run"], ["create"]):
            return _container(rest[1:], notes, name, command.env)
        if rest[:1] != ["exec"]:
            return None
        words = rest[2 + split_options(rest[1:], notes)[1] :]  # in a container that another command made
    if found := engine_line.recognise_engine(words, ""):
        notes.note(words[0], "runs without a container here; add `image`")
        made: dict[str, Any] = {"env": {}, "env_from": []}
        for variable, value in command.env.items():
            add_variable(f"{variable}={value}", made, notes)
        engine = engine_line.read_engine_line(*found, notes, made["env"])
        return assemble_profile(engine, made, name or "", notes)
    inner = _unwrap(words, notes)
    return None if inner.words is words else import_command(Command(inner.words, command.env | inner.env), notes, name)


def assemble_profile(engine: EnginePart, container: dict[str, Any], name: str, notes: ImportNotes) -> dict[str, Any]:
    own = _own_name(engine, name)
    serves = values.aliases(engine.names, own, notes)
    mounts = [mount for mount in container.pop("mounts", []) if not _implied(mount, engine.models)]
    if engine.kind != "llamacpp" and container.get("shm_size") == SHM_SIZE:
        del container["shm_size"]
    made = {
        "profile": own,
        "engine": engine.kind,
        "image": container.pop("image", None),
        "command": engine.command,
        "models": engine.models,
        "serves": serves,
        "args": engine.args,
        "env": container.pop("env", {}),
        "mounts": mounts,
        "nodes": engine.nodes if engine.nodes > 1 else None,
    } | container
    return {key: value for key, value in made.items() if value not in (None, [], {})}


def _own_name(engine: EnginePart, name: str) -> str:
    """Return the given name, else the first served name, else the model's file or repository name."""
    model = engine.models["target"]
    basename = PurePosixPath((model.get("path") or model.get("hf") or "").partition(":")[0]).name
    told = [one for one in (name, *engine.names[:1], basename.removesuffix(".gguf")) if "$" not in one]
    return next(filter(None, map(values.profile_name, told)), "imported")


def _implied(mount: dict[str, Any], models: dict[str, dict[str, str]]) -> bool:
    """Whether a mount is a model's read-only mount at its own path, which sparkdash makes by itself."""
    paths = [ref["path"] for ref in models.values() if "path" in ref]
    folders = {str(PurePosixPath(path).parent) if path.endswith(".gguf") else path for path in paths}
    return mount["source"] == mount["target"] and mount.get("read_only", True) and mount["source"] in folders


def _container(
    words: list[str], notes: ImportNotes, name: str | None, exported: Mapping[str, str]
) -> dict[str, Any] | None:
    options, index = split_options(words, notes)
    if index >= len(words):
        notes.unknown("podman run", "a run command without an image, left out")
        return None
    container = container_fields(options, notes) | {"image": words[index]}
    fill_from_script(container, exported, notes)
    hint = container.pop("name", "")
    entrypoint = [word for word in container.get("entrypoint", []) if word]
    inside = _unwrap([*entrypoint, *words[index + 1 :]], notes)
    found = engine_line.recognise_engine(inside.words, "" if entrypoint else words[index])
    container.pop("entrypoint", None)
    if found is None:
        given = " ".join(inside.words[:3]) or "none given"
        notes.note(words[index], f"its command starts no engine that is known here ({given}); left out")
        return None
    for variable, value in inside.env.items():
        add_variable(f"{variable}={value}", container, notes)
    aliased = container.pop("names", [])
    engine = engine_line.read_engine_line(*found, notes, container["env"])
    engine.names += aliased
    return assemble_profile(engine, container, name or engine.own_name(hint.removeprefix("sparkdash-")), notes)


def _unwrap(words: list[str], notes: ImportNotes) -> Command:
    """Return the engine command inside `bash -c "…"`, when it has exactly one; its other steps are named."""
    if words[:1] == ["eval"]:
        words = ["sh", "-c", " ".join(words[1:])]
    flags = list(takewhile(lambda word: word.startswith("-"), words[1:]))
    is_shell = bool(words) and PurePosixPath(words[0]).name in ("bash", "sh", "dash", "zsh")
    script, arguments = words[1 + len(flags) :][:1], words[1 + len(flags) :][2:]
    if not (is_shell and script and any(re.fullmatch(r"-[a-z]*c[a-z]*", flag) for flag in flags)):
        return Command(words, {})
    inner = only_engine(parse_commands(script[0], notes, arguments=arguments), notes)
    if inner is None:
        return Command(words, {})
    notes.rewritten(" ".join([words[0], *flags]), "the engine is started without a shell around it")
    for at, word in enumerate(arguments, start=1):
        if not re.search(rf"\$\{{?(?:{at}\b|[@*])", script[0]):
            notes.unknown(word, "an argument that the shell's text does not name, left out")
    return inner


def only_engine(commands: list[Command], notes: ImportNotes) -> Command | None:
    """Return the one command that starts an engine, and name the other steps; None without one, or with several."""
    inner = [one for one in commands if engine_line.recognise_engine(one.words, "")]
    if len(inner) != 1:
        return None
    for other in commands:
        if other is not inner[0]:
            _note_step(other.words, notes)
    return inner[0]
