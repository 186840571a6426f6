"""An engine's answer to the warm-up's question, compared with that of the first start of the same launch.

The same image, weights and flags answer a greedy request alike. Other text after a start with kept caches, or from
weights that changed on disk, is a sign that the engine serves wrong answers.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.profile import ModelRef, Profile, on_host
from sparkdash.host.local_weights import weight_files_of
from sparkdash.paths import read_small_file, replace_file


class Canaries:
    """File of one answer for each profile, with the launch that gave it. An unreadable file counts as empty."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def kept(self, profile: Profile, image_id: str, hf_home: Path, answer: str) -> str:
        """Return the first answer of this launch, which is `answer` if none is kept. Reads the disk."""
        kept, launch = self._read(), launch_key(profile, image_id, hf_home)
        if (known := kept.get(profile.name)) and known["launch"] == launch:
            return str(known["answer"])
        kept[profile.name] = {"launch": launch, "answer": answer}
        with suppress(OSError):
            replace_file(self._file, json.dumps(kept).encode())
        return answer

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            return dict(json.loads(read_small_file(self._file)))
        except (OSError, ValueError, RecursionError, TypeError):
            return {}


def launch_key(profile: Profile, image_id: str, hf_home: Path, *more: str) -> str:
    """Hash what an engine's answers depend on: flags, image, weights, files that flags name, `more`. Reads the disk."""
    found = [profile.fingerprint, image_id, *more]
    weights = {file for ref in profile.weights for file in weight_files_of(ref, hf_home)}
    paths = (value for value in profile.args.values() if isinstance(value, str) and value.startswith("/"))
    named = {Path(on_host(ModelRef(path=path), profile.mounts).ref) for path in paths}
    for file in sorted(weights | named):
        with suppress(OSError):
            seen = file.stat()
            found.append(f"{file} {seen.st_size} {seen.st_mtime_ns}")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:24]
