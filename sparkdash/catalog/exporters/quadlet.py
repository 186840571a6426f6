"""A profile as a quadlet: a systemd unit that podman generates. Keys: podman-systemd.unit(5), podman 5."""

from __future__ import annotations

import re

from sparkdash.catalog.exporters import own
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import Profile


def unit(profile: Profile, spec: ContainerSpec) -> str:
    """The .container file. It is started by hand and never restarted: an engine in a crash loop can freeze the box."""
    lines = [
        f"# {profile.name}, exported by sparkdash.",
        *own.lost(profile, "request"),
        "[Unit]",
        f"Description={_plain(profile.about or profile.name)}",
        "",
        "[Container]",
        f"ContainerName={spec.name}",
        f"Image={_plain(spec.image or '')}",
        "Network=host",
        *(f"AddDevice={device}" for device in spec.devices),
        *([f"ShmSize={spec.shm_size}"] if spec.shm_size else []),
        *(
            f"Volume={_plain(mount.source)}:{_plain(mount.target)}{':ro' if mount.read_only else ''}"
            for mount in spec.mounts
        ),
        *(f"Tmpfs={_plain(tmpfs)}" for tmpfs in spec.tmpfs),
        *(f"Environment={_quoted(f'{name}={text}')}" for name, text in spec.env.items()),
        *(f"PodmanArgs=--env {name}" for name in spec.env_from),
        f"Entrypoint={_quoted(spec.argv[0])}",
        f"Exec={' '.join(map(_quoted, spec.argv[1:]))}",
        "",
        "[Service]",
        # Loading a large model takes minutes, which systemd would take for a failure.
        "TimeoutStartSec=1800",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("%", "%%")


def _quoted(word: str) -> str:
    """As systemd.syntax(7) and systemd.service(5) want it: % and $ doubled, quoted when it has more than plain characters."""
    text = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w./:=@%$,+-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
