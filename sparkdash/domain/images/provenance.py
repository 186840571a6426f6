"""Provenance of an image that was built here: the labels it carries, and the digest of what it was built from.

Owns: the labels' names. Must not know how an image is built or read.
Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from sparkdash.domain.base import Frozen
from sparkdash.domain.images.image_build import ImageBuild

LABEL_DIGEST = "sparkdash.build.digest"
LABEL_PROFILE = "sparkdash.build.profile"
LABEL_VERSION = "sparkdash.build.version"
LABEL_SOURCE = "org.opencontainers.image.source"
LABEL_REVISION = "org.opencontainers.image.revision"
LABEL_BASE = "org.opencontainers.image.base.name"

_NOT_BUILT_FROM = {"minutes", "disk_gib", "memory_gib", "licence", "source", "unavailable"}
"""Keys of a build that change nothing of its image."""


class Provenance(Frozen):
    """Origin of an image that `sparkdash build` made."""

    digest: str
    """`build_digest` at the time of the build."""
    profile: str | None = None
    source: str | None = None
    revision: str | None = None
    version: str | None = None
    """Version of sparkdash that built it."""
    created: str | None = None
    architecture: str | None = None


def build_digest(build: ImageBuild, files: Mapping[str, str]) -> str:
    """Hash (12 hex digits) of what an image is made from. `files`: digests of the files beside the profile, by path."""
    made = build.model_dump(mode="json", exclude=_NOT_BUILT_FROM, exclude_defaults=True)
    text = json.dumps([made, dict(files), {}], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def build_labels(build: ImageBuild, *, profile: str, digest: str, version: str) -> dict[str, str]:
    """Return the labels of an image."""
    labels = {
        LABEL_DIGEST: digest,
        LABEL_PROFILE: profile,
        LABEL_VERSION: version,
        LABEL_SOURCE: build.repo or build.context or "",
    }
    if build.commit:
        labels[LABEL_REVISION] = build.commit
    if build.base:
        labels[LABEL_BASE] = build.base
    return labels


def read_provenance(labels: Mapping[str, str], *, created: str | None, architecture: str | None) -> Provenance | None:
    """Read the labels of an image; None for an image that sparkdash did not build."""
    if LABEL_DIGEST not in labels:
        return None
    return Provenance(
        digest=labels[LABEL_DIGEST],
        profile=labels.get(LABEL_PROFILE),
        source=labels.get(LABEL_SOURCE),
        revision=labels.get(LABEL_REVISION),
        version=labels.get(LABEL_VERSION),
        created=created,
        architecture=architecture,
    )
