"""Git repository with recipes, for the tests of profile sources."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

RECIPE = """\
recipe_version: '1'
name: {name}
description: {about}
model: org/{name}
container: vllm-node
defaults: {{port: 8000, host: 0.0.0.0, max_model_len: 4096}}
command: |
  vllm serve org/{name} --max-model-len {{max_model_len}} --host {{host}} --port {{port}}
"""
_AUTHOR = {
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
}  # fmt: skip


class GitCollection:
    """Repository with a work tree, in which every change is committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words],
            env={**os.environ, **_AUTHOR},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def recipe(self, path: str, name: str, about: str = "a model") -> None:
        self.write(path, RECIPE.format(name=name, about=about))

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")
        return self.git("rev-parse", "HEAD")
