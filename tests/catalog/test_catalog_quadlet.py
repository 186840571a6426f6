"""Exported quadlets, as podman's own generator reads them.

The generator comes with podman 4.4 and newer, which many machines lack; its answer was recorded with podman 5.4.2, by

    .venv/bin/python tests/catalog/test_catalog_quadlet.py /usr/libexec/podman/quadlet

and the test holds that the same unit is still written, and that systemd would start the profile's command from the answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sparkdash.catalog.quadlet_unit import quadlet_unit
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import EngineKind, Mount, Profile
from sparkdash.errors import ProfileError

DATA = Path(__file__).parents[1] / "data" / "quadlet"
PROFILE = Profile(name="odd", engine=EngineKind.VLLM, about="100 % odd\nwords")
SPEC = ContainerSpec(
    name="sparkdash-odd",
    image="localhost/vllm:test",
    argv=(
        "/opt/my vllm", "serve", "/data/a b", "--json", '{"a":"x\'y","b":"$HOME %h"}', "--lines", "one\ntwo",
        "--back", "c:\\d", "--list", "a;b", "--tab", "a\tb", "--word", "é`x`#", "--price", "$5", "--last", "99%",
    ),
    port=18000,
    env={"PLAIN": "1", "SAYS": 'say "hi" $X %i', "EMPTY": "", "LINES": "one\ntwo"},
    env_from=("HF_TOKEN",),
    mounts=(Mount(source="/home/own er/$cache", target="/cache", read_only=False), Mount(source="/data", target="/data")),
    tmpfs=("/run/$x",),
    devices=("nvidia.com/gpu=all",),
    shm_size="8g",
)  # fmt: skip


def test_the_recorded_unit_is_the_one_that_is_written() -> None:
    """Else the record below is of something else: make it anew."""
    assert quadlet_unit(PROFILE, SPEC) + "\n" == (DATA / "odd.container").read_text()


def test_systemd_starts_the_profile_s_own_command() -> None:
    """Every word, variable and mount arrives as it was, through the generator's quoting and systemd's."""
    words = systemd_words((DATA / "odd.execstart").read_text().strip())
    image = words.index("localhost/vllm:test")
    options, command = words[:image], words[image + 1 :]
    assert (options[options.index("--entrypoint") + 1], *command) == SPEC.argv
    assert set(after("--env", options)) == {*(f"{name}={text}" for name, text in SPEC.env.items()), "HF_TOKEN"}
    assert after("-v", options) == ["/home/own er/$cache:/cache", "/data:/data:ro"]
    assert (after("--tmpfs", options), after("--device", options)) == (["/run/$x"], ["nvidia.com/gpu=all"])
    assert (after("--shm-size", options), after("--network", options)) == (["8g"], ["host"])


@pytest.mark.parametrize("word", ["", ";"])
def test_a_word_that_the_generator_loses_is_refused(word: str) -> None:
    """5.4.2 drops an empty word with all that follow it, and leaves a lone semicolon bare, which ends systemd's command."""
    with pytest.raises(ProfileError, match="a quadlet cannot") as caught:
        quadlet_unit(PROFILE, SPEC.model_copy(update={"argv": ("vllm", "serve", "--x", word, "--y")}))
    assert "--as podman" in caught.value.text()


def systemd_words(line: str) -> list[str]:
    """A command line as systemd.service(5) reads it: quotes, C escapes, %% and $$."""
    words = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', line)
    assert ";" not in words
    plain = (
        re.sub(r"\\(.)", lambda hit: {"n": "\n", "t": "\t"}.get(hit[1], hit[1]), word.strip('"'))
        if word[0] == '"'
        else word
        for word in words
    )
    return [word.replace("$$", "$").replace("%%", "%") for word in plain]


def after(flag: str, words: list[str]) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == flag]


def record(generator: str) -> None:
    """Ask the generator, and keep the unit with what it says."""
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "odd.container"
        unit.write_text(quadlet_unit(PROFILE, SPEC) + "\n")
        environment = {**os.environ, "QUADLET_UNIT_DIRS": folder}
        argv = [generator, "--dryrun", "--user"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        (start,) = re.findall(r"^ExecStart=(.*)$", done.stdout, re.MULTILINE)
        (DATA / "odd.container").write_text(unit.read_text())
        (DATA / "odd.execstart").write_text(start + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
