"""Profile as a quadlet, a systemd unit that podman 5 generates; its keys: podman-systemd.unit(5).

Values of [Container] go into systemd's command line, so that a $ is doubled (tests/data/quadlet, of 5.4.2).
"""

import re

from sparkdash.domain.container import LABEL_SERVES, ContainerSpec
from sparkdash.domain.profile import Profile
from sparkdash.errors import ProfileError

KEPT = frozenset(
    {
        "about", "engine_version", "context", "memory", "request", "request_set", "request_strip", "modes", "mends_off",
        "mirror_reasoning", "first_byte_s", "between_bytes_s", "on_stuck", "protocols", "published", "silence",
        "fork_flags", "can", "keep_kv", "adapters",
    }
)  # fmt: skip
"""Keys of sparkdash alone, of which a container knows nothing."""


def left_out(profile: Profile) -> str:
    """Name in a comment what of the profile no container carries."""
    given = profile.model_dump(mode="json", include=set(KEPT), exclude_defaults=True)
    return f"# In the profile alone: {', '.join(sorted(given)) or 'nothing more'}."


def quadlet_unit(profile: Profile, spec: ContainerSpec) -> str:
    """Render the .container file, started by hand and never restarted. Raises ProfileError: a lost word."""
    _carried(profile, spec.argv)
    lines = [
        f"# {profile.name}, exported by sparkdash.",
        left_out(profile),
        "[Unit]",
        f"Description={_plain(profile.about or profile.name)}",
        "",
        "[Container]",
        f"ContainerName={spec.name}",
        f"Image={_value(spec.image or '')}",
        # The importer reads the label back; not every engine has a flag for aliases
        *([f"Label={_quoted(LABEL_SERVES + '=' + ','.join(profile.serves))}"] if profile.serves else []),
        f"PublishPort=127.0.0.1:{spec.port}:{spec.inner_port}" if spec.inner_port else "Network=host",
        *(f"AddDevice={device}" for device in spec.devices),
        *([f"ShmSize={spec.shm_size}"] if spec.shm_size else []),
        *([f"SeccompProfile={_value(spec.seccomp)}"] if spec.seccomp else []),
        *(
            f"Volume={_value(mount.source)}:{_value(mount.target)}{':ro' if mount.read_only else ''}"
            for mount in spec.mounts
        ),
        *(f"Tmpfs={_value(tmpfs)}" for tmpfs in spec.tmpfs),
        *(f"Environment={_quoted(f'{name}={text}')}" for name, text in spec.env.items()),
        *(f"PodmanArgs=--env {name}" for name in spec.env_from),
        *([f"StopSignal={spec.stop_signal}"] if spec.stop_signal else []),
        *_program(spec),
        "",
        "[Service]",
        # Loading a large model takes minutes, which systemd would take for a failure.
        "TimeoutStartSec=1800",
    ]
    return "\n".join(lines)


def _program(spec: ContainerSpec) -> list[str]:
    if not spec.keeps_entrypoint:
        return [f"Entrypoint={_quoted(spec.argv[0])}", f"Exec={' '.join(map(_quoted, spec.argv[1:]))}"]
    return [f"Exec={' '.join(map(_quoted, spec.argv))}"] if spec.argv else []


def _carried(profile: Profile, argv: tuple[str, ...]) -> None:
    """Refuse words that get lost: the generator cuts at an empty word and leaves a bare ;, which ends a command."""
    lost = next((word for word in argv if word in ("", ";")), None)
    if lost is not None:
        raise ProfileError(
            f"The command of {profile.name} has the word {lost!r}, which a quadlet cannot carry.",
            code="export_refused",
            hint="Change that argument, or export it with `--as podman`.",
        )


def _value(text: str) -> str:
    return _plain(text).replace("$", "$$")


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("%", "%%")


def _quoted(word: str) -> str:
    """Quote per systemd.syntax(7) and systemd.service(5): % and $ doubled, quotes around special characters."""
    text = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w./:=@%$,+-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
