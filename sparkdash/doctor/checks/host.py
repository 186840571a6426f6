"""Checks of the box itself: architecture, system release, cgroups.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, note, ok, warn
from sparkdash.doctor.facts import Facts

OS_RELEASE = "/etc/os-release"
DGX_RELEASE = "/etc/dgx-release"
PRODUCT = "/sys/class/dmi/id/product_name"
CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"
DELEGATED = "/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
NEEDED = frozenset({"memory", "pids"})
"""Controllers that rootless podman uses."""
_DROP_IN = "/etc/systemd/system/user@.service.d"
DELEGATE = (
    f"sudo mkdir -p {_DROP_IN}; printf '[Service]\\nDelegate=yes\\n' | sudo tee {_DROP_IN}/delegate.conf; "
    "sudo systemctl daemon-reload; then log out and in"
)
"""Writes a file, as `systemctl set-property` refuses templates, and Delegate= for existing units."""

_QUOTED = re.compile(r'^(\w+)="?([^"\n]*)"?$', re.MULTILINE)


@check("architecture", "A DGX Spark is aarch64; images for another processor do not run here.")
def architecture(facts: Facts) -> Iterator[CheckResult]:
    """Compare the machine type of uname with a DGX Spark's."""
    if facts.machine == "aarch64":
        yield ok("aarch64 (uname).")
    else:
        yield note(f"{facts.machine} (uname): not a DGX Spark, and images made for one do not run here.")


@check("system", "The release of DGX OS and its kernel.", reads=(OS_RELEASE, DGX_RELEASE, PRODUCT))
def system(facts: Facts) -> Iterator[CheckResult]:
    """Report the two release files and the board's name."""
    named = _values(facts.file(OS_RELEASE)).get("PRETTY_NAME", "an unnamed system")
    about = f"{named}, kernel {facts.kernel}"
    if board := (facts.file(PRODUCT) or "").strip():
        about += f", on {board}"
    dgx = _values(facts.file(DGX_RELEASE))
    release = dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION")
    if release:
        yield ok(f"DGX OS {release} ({DGX_RELEASE}): {about}.")
    else:
        yield note(f"{about}: not DGX OS ({DGX_RELEASE} is not there).")


@check("cgroups", "cgroups v2, with the controllers that rootless containers need.", reads=(CONTROLLERS, DELEGATED))
def cgroups(facts: Facts) -> Iterator[CheckResult]:
    """Check for cgroups v2, and for the controllers that systemd delegates to this user."""
    if facts.file(CONTROLLERS) is None:
        yield warn(
            f"cgroups are not v2 ({CONTROLLERS} is not there): crun refuses them, and podman drops v1.",
            "kernel command line: systemd.unified_cgroup_hierarchy=1",
        )
        return
    if not facts.rootless:
        yield ok(f"v2 ({CONTROLLERS}); podman runs as root.")
        return
    delegated = facts.file(DELEGATED)
    if delegated is None:
        yield note(f"v2; no user manager runs for this user ({facts.path(DELEGATED)} is not there).")
    elif missing := NEEDED - set(delegated.split()):
        yield warn(
            f"v2, but {' and '.join(sorted(missing))} not delegated to this user ({facts.path(DELEGATED)}).",
            DELEGATE,
        )
    else:
        yield ok(f"v2, delegated to this user: {' '.join(delegated.split())}.")


def _values(text: str | None) -> dict[str, str]:
    return dict(_QUOTED.findall(text or ""))
