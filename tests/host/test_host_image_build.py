"""Reading of podman's output and of an image's labels, and the end of a build, without a podman."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from sparkdash.domain.images import (
    ImageBuild,
    ImageState,
    build_digest,
    build_labels,
    how_to_get,
    image_state,
    read_provenance,
)
from sparkdash.errors import AdmissionError, HostError
from sparkdash.host.command import stdout_lines
from sparkdash.host.podman import build_keeper, image_build
from sparkdash.host.podman.image_build import TAIL, Box, BuildJob, BuildReader, build_command, check_room, kept_child
from sparkdash.units import GIB

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = ImageBuild(repo="https://git.example/a", commit=COMMIT)
BOX = Box(Path("/images"), 50 * GIB, 20 * GIB)


def test_steps_are_read_with_their_stage_and_the_share_that_is_over() -> None:
    reader = BuildReader("localhost/a:1")
    first = reader.feed("[1/2] STEP 1/4: FROM scratch AS one")
    assert (first.stage, first.stages, first.number, first.of, first.fraction) == (1, 2, 1, 4, 0)
    assert reader.feed("--> 9eb29cb6e5c") is None
    last = reader.feed("[2/2] STEP 3/4: RUN make")
    assert (last.text, last.fraction, last.cached) == ("RUN make", 0.75, False)
    cached = reader.feed("--> Using cache ca78fa7662d0ed6a")
    assert (cached.text, cached.cached) == ("RUN make", True)
    plain = reader.feed("STEP 2/3: RUN x")
    assert plain.fraction == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("lines", "step"),
    [
        (["Step 2/4 : RUN make", " ---> Using cache"], ("RUN make", 2, 4, True)),
        (["#3 [internal] load build context", "#5 [stage-1 2/3] RUN echo [1/2] x"], ("RUN echo [1/2] x", 2, 3, False)),
        (["#4 [1/3] COPY a b", "#4 sha256:73c61c6376", "#4 CACHED"], ("COPY a b", 1, 3, True)),
    ],
)
def test_steps_of_dockers_builders_are_read(lines: list[str], step: tuple[str, int, int, bool]) -> None:
    """Docker 28 with its older builder, and BuildKit of 20.10, as both printed them."""
    reader = BuildReader("localhost/a:1")
    *_, last = [found for line in lines if (found := reader.feed(line))]
    assert (last.text, last.number, last.of, last.cached) == step


def test_the_last_lines_are_kept_and_obey_nothing() -> None:
    reader = BuildReader("localhost/a:1")
    for number in range(TAIL + 5):
        reader.feed(f"line {number}")
    reader.feed("\x1b]0;title\x07")
    assert (len(reader.tail), "\x1b" in "".join(reader.tail), reader.tail[0]) == (TAIL, False, "line 6")


def test_the_digest_is_of_what_the_image_is_made_from_alone() -> None:
    same = REPO.replace(minutes=3.0, licence="MIT", source="somewhere", disk_gib=1.0)
    assert build_digest(same, {}) == build_digest(REPO, {})
    others = [
        build_digest(REPO.replace(commit=COMMIT[::-1]), {}),
        build_digest(REPO.replace(args={"A": "1"}), {}),
        build_digest(REPO, {"Containerfile": "1"}),
    ]
    assert len({build_digest(REPO, {}), *others}) == 4


def test_labels_come_back_as_they_were_given() -> None:
    labels = build_labels(REPO, profile="a", digest="d", version="1")
    known = read_provenance(labels, created="2026", architecture="arm64")
    assert (known.digest, known.profile, known.source, known.revision) == ("d", "a", REPO.repo, COMMIT)
    assert read_provenance({"maintainer": "x"}, created=None, architecture=None) is None


def user(**facts: object) -> SimpleNamespace:
    return SimpleNamespace(**({"name": "m", "image": "localhost/m:1", "build": None, "nearest": None} | facts))


@pytest.mark.parametrize(("facts", "here", "digests", "state"), [
    ({"image": None}, None, (None, None), ImageState.NOT_NEEDED), ({}, None, (None, None), ImageState.UNKNOWN),
    ({}, True, (None, None), ImageState.PULLED), ({"build": REPO}, True, ("d", "d"), ImageState.BUILT),
    ({"build": REPO}, True, ("d", "e"), ImageState.OLDER),
    ({"build": REPO}, False, (None, None), ImageState.TO_BUILD),
    ({"build": ImageBuild(unavailable="x")}, False, (None, None), ImageState.NOT_TO_BE_HAD),
    ({}, False, (None, None), ImageState.NOT_TO_BE_HAD),
    ({"image": "ghcr.io/a/b:1"}, False, (None, None), ImageState.TO_PULL),
])  # fmt: skip
def test_the_state_of_an_image(
    facts: dict[str, object], here: bool | None, digests: tuple[str | None, str | None], state: ImageState
) -> None:
    assert image_state(user(**facts), here=here, digest=digests[0], current=digests[1]) is state


def test_what_is_to_be_done_names_the_command_and_the_way_round() -> None:
    assert how_to_get(user(image="a/b:1")) == "Fetch it with `sparkdash pull m`."
    told = how_to_get(user(build=ImageBuild(unavailable="its source is not public"), nearest="n"))
    assert told.startswith("It cannot be built: its source is not public. n serves the same model")


def job(build: ImageBuild, folder: Path = Path("/profiles")) -> BuildJob:
    return BuildJob("localhost/a:1", "a", build, folder, "d")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    return tmp_path / "builds" / "a-1"


def test_a_resumed_build_needs_no_room_for_what_it_has_already(state: Path) -> None:
    build = job(REPO.replace(disk_gib=60.0))
    with pytest.raises(HostError, match=r"60\.0 GiB of disk; 50\.0 GiB are free"):
        check_room(build, BOX)
    state.mkdir(parents=True)
    (state / "running.json").touch()
    check_room(build, BOX)
    with pytest.raises(AdmissionError, match=r"30\.0 GiB of memory; 20\.0 GiB are available"):
        check_room(job(REPO.replace(memory_gib=30.0)), BOX)


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("address", ["https://git.example/a", "https://git.example/a.git", "https://git.example/a/"])
def test_podman_is_given_the_repository_at_its_commit(address: str) -> None:
    """Podman knows a repository by the name's end, and would take another address for an archive."""
    words = build_command(job(REPO.replace(repo=address, context="docker", target="final", base="b:1")))
    assert words[:2] == ["podman", "build"]
    assert words[-1] == f"https://git.example/a.git#{COMMIT}:docker"
    assert [words[words.index(flag) + 1] for flag in ("--target", "--from")] == ["final", "b:1"]
    assert f"org.opencontainers.image.revision={COMMIT}" in words


def test_large_files_beside_a_profile_are_compared_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_build, "HASHED_BYTES", 10)
    build = ImageBuild(context="img")
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "Containerfile").write_text("FROM a\n")
    (tmp_path / "img" / "weights").write_bytes(b"1" * 20)
    before = image_build._local_files(tmp_path, build)
    (tmp_path / "img" / "weights").write_bytes(b"2" * 20)
    assert image_build._local_files(tmp_path, build) == before
    (tmp_path / "img" / "Containerfile").write_text("FROM b\n")
    assert image_build._local_files(tmp_path, build) != before


@pytest.mark.usefixtures("state")
def test_one_build_of_an_image_at_a_time() -> None:
    with image_build._held("localhost/a:1"):
        again = image_build._held("localhost/a:1")
        with pytest.raises(HostError, match="is being built already"), again:
            pass


TREE = 'sleep 1000 & setsid sleep 1000 & trap "" TERM INT; echo begun $$; wait'
"""A shell that refuses to end, with a child, and one in a session of its own, as a step of a Containerfile is."""


def tree_of(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


async def begun(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    """Wait until the shell has begun both, which it says afterwards; list all of it."""
    return tree_of(int((await anext(stdout_lines(process))).split()[1]))


async def test_a_cancelled_caller_leaves_nothing() -> None:
    started: asyncio.Future[list[psutil.Process]] = asyncio.get_running_loop().create_future()

    async def build() -> None:
        async with kept_child(["sh", "-c", TREE]) as process:
            started.set_result(await begun(process))
            await process.wait()

    task = asyncio.create_task(build())
    found = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert psutil.wait_procs(found, timeout=30)[1] == []


async def test_the_exit_code_and_both_outputs_come_through() -> None:
    async with kept_child(["sh", "-c", "echo out; echo err >&2; exit 7"]) as process:
        assert [line async for line in stdout_lines(process)] == ["out", "err"]
        assert await process.wait() == 7


def test_the_keeper_ends_the_tree_when_its_input_ends() -> None:
    """However the parent ended: the kernel closes the pipe."""
    words = [sys.executable, build_keeper.__file__, "sh", "-c", TREE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline().split()[1])
        found = tree_of(pid)
        process.stdin.close()
        assert process.wait(timeout=30) == 130
    assert psutil.wait_procs(found, timeout=30)[1] == []
