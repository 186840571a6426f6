"""Texts of the two files that let one user free and compact the box's memory without a password.

Owns: the system unit's text, the sudo rule, and recognising them. Must not know how they are written or started.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = "sparkdash-memory.service"
UNIT = f"/etc/systemd/system/{NAME}"
RULE = "/etc/sudoers.d/sparkdash-memory"
SYSTEMCTL = "/usr/bin/systemctl"
START = (SYSTEMCTL, "start", NAME)
"""Only command that the rule allows, word for word."""
MARK = "# Written by `sparkdash service install --helper`"

_PLAIN = re.compile(r"[a-z_][a-z0-9_-]*")

# ProtectKernelTunables would make /proc/sys read-only, including the two files. No capability is needed: root owns
# them, mode 0200.
TEXT = f"""{MARK}; the next install writes it anew.
[Unit]
Description=Free and compact the memory before sparkdash loads a model
StartLimitIntervalSec=60
StartLimitBurst=10

[Service]
Type=oneshot
ExecStart=/bin/sync
ExecStart=/bin/sh -c 'echo 3 >/proc/sys/vm/drop_caches'
ExecStart=/bin/sh -c 'echo 1 >/proc/sys/vm/compact_memory'
TimeoutStartSec=60
# It writes these two files and nothing else.
ProtectSystem=strict
ReadOnlyPaths=/proc /sys
ReadWritePaths=/proc/sys/vm/drop_caches /proc/sys/vm/compact_memory
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateNetwork=yes
RestrictAddressFamilies=none
IPAddressDeny=any
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077
"""
"""Unit (systemd.service(5), systemd.exec(5)). Nothing enables it: only a start runs it."""


@dataclass(frozen=True, slots=True)
class HelperFile:
    """File of the helper, with its path, content and mode."""

    path: str
    text: str
    mode: int


def rule(user: str, uid: int) -> str:
    """Compose the line for sudoers(5); a number replaces a user name that would need quoting."""
    who = user if _PLAIN.fullmatch(user) else f"#{uid}"
    return f"{MARK}.\n{who} ALL=(root) NOPASSWD: {' '.join(START)}\n"


def files(user: str, uid: int) -> tuple[HelperFile, ...]:
    """Files to install for this user; root needs no rule."""
    unit = HelperFile(UNIT, TEXT, 0o644)
    return (unit,) if uid == 0 else (unit, HelperFile(RULE, rule(user, uid), 0o440))


def ours(text: str) -> bool:
    """Whether sparkdash wrote a file with this text."""
    return text.startswith(MARK)
