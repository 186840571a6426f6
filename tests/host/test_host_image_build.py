"""What is read of a Containerfile, of podman's output, and of an image's labels, without a podman."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkdash.domain.images.availability import ImageState, how_to_get, image_state
from sparkdash.domain.images.image_build import ImageBuild, SourceEdit
from sparkdash.domain.images.provenance import build_digest, build_labels, read_provenance
from sparkdash.errors import AdmissionError, HostError, ProfileError
from sparkdash.host.image_build import source
from sparkdash.host.image_build.build_folder import LOGS, BuildFolder
from sparkdash.host.image_build.containerfile import BaseImage, base_images
from sparkdash.host.image_build.looks import BaseState, Box, check_bases, check_room
from sparkdash.host.image_build.progress import TAIL, BuildReader
from sparkdash.units import GIB

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = ImageBuild(repo="https://git.example/a", commit=COMMIT)
BOX = Box("arm64", Path("/images"), 50 * GIB, 20 * GIB)


@pytest.mark.parametrize(
    ("text", "bases"),
    [
        ("FROM a:1\n", [("a:1", None)]),
        (
            "# FROM no\nfrom a:1 as one\nFROM one\nFROM b:2 AS two\nCOPY --from=one / /\n",
            [("a:1", None), ("b:2", None)],
        ),
        ("FROM scratch\nFROM a\nFROM a\n", [("a", None)]),
        ("ARG BASE=a:1\nFROM ${BASE}\n", [("a:1", None)]),
        ('ARG BASE="a:1"\nFROM $BASE\n', [("a:1", None)]),
        ("ARG TAG\nFROM a:${TAG:-7}\n", [("a:7", None)]),
        ("ARG TAG=5\nFROM a:${TAG}\n", [("a:9", None)]),
        ("FROM --platform=linux/amd64 a\n", [("a", "linux/amd64")]),
        ("FROM --platform=$BUILDPLATFORM a\n", [("a", None)]),
        ("FROM \\\n  a:1 \\\n  AS x\n", [("a:1", None)]),
        ("FROM a\nARG BASE=b\nRUN echo FROM c\n", [("a", None)]),
        ("FROM a\nRUN python3 - <<'PY'\nfrom pathlib import Path\nPY\nFROM b\n", [("a", None), ("b", None)]),
        ("FROM a\nRUN cat <<-ONE <<TWO\nFROM x\n\tONE\nFROM y\nTWO\nFROM b\n", [("a", None), ("b", None)]),
        ("FROM a\nRUN wc <<< from\nFROM b\n", [("a", None), ("b", None)]),
        ("FROM a\nRUN cat <<'NEVER ENDS\nFROM b\n", [("a", None), ("b", None)]),
        (
            "FROM a AS one\nFROM b\nCOPY --chown=0 --from=c:1 /x /\nCOPY --from=one / /\nCOPY --from=0 / /\n",
            [("a", None), ("b", None), ("c:1", None)],
        ),
        (
            "FROM a\nRUN --mount=type=bind,from=c:2,target=/c --mount=type=cache,target=/k ls\n",
            [("a", None), ("c:2", None)],
        ),
        ("FROM a\nRUN cp --from=d / /\n", [("a", None)]),
    ],
    ids=str,
)
def test_base_images_of_a_containerfile(text: str, bases: list[tuple[str, str | None]]) -> None:
    args = {"TAG": "9"} if "TAG=5" in text else {}
    assert base_images(text, args) == tuple(BaseImage(*one) for one in bases)


def test_another_base_takes_the_place_of_the_first() -> None:
    assert base_images("FROM a:latest\nFROM b\n", {}, first="a@sha256:1") == (BaseImage("a@sha256:1"), BaseImage("b"))


def test_steps_are_read_with_their_stage_and_the_share_that_is_over() -> None:
    reader = BuildReader("localhost/a:1")
    first = reader.feed("[1/2] STEP 1/4: FROM scratch AS one")
    assert first is not None
    assert (first.stage, first.stages, first.number, first.of, first.fraction) == (1, 2, 1, 4, 0)
    assert reader.feed("--> 9eb29cb6e5c") is None
    last = reader.feed("[2/2] STEP 3/4: RUN make")
    assert last is not None
    assert (last.text, last.fraction, last.cached) == ("RUN make", 0.75, False)
    cached = reader.feed("--> Using cache ca78fa7662d0ed6a")
    assert cached is not None
    assert (cached.text, cached.cached) == ("RUN make", True)
    plain = reader.feed("STEP 2/3: RUN x")
    assert plain is not None
    assert plain.fraction == pytest.approx(1 / 3)


def test_the_last_lines_are_kept_and_obey_nothing() -> None:
    """A build's output is a stranger's text."""
    reader = BuildReader("localhost/a:1")
    for number in range(TAIL + 5):
        reader.feed(f"line {number}")
    reader.feed("\x1b]0;title\x07")
    assert (len(reader.tail), "\x1b" in "".join(reader.tail), reader.tail[0]) == (TAIL, False, "line 6")


def test_the_digest_is_of_what_the_image_is_made_from_alone() -> None:
    same = REPO.replace(minutes=3.0, licence="MIT", source="somewhere", disk_gib=1.0)
    assert build_digest(same, {}, {}) == build_digest(REPO, {}, {})
    others = [
        build_digest(REPO.replace(commit=COMMIT[::-1]), {}, {}),
        build_digest(REPO.replace(args={"A": "1"}), {}, {}),
        build_digest(REPO, {"Containerfile": "1"}, {}),
        build_digest(REPO, {}, {"localhost/b:1": "1"}),
    ]
    assert len({build_digest(REPO, {}, {}), *others}) == 5


def test_labels_come_back_as_they_were_given() -> None:
    labels = build_labels(REPO, profile="a", digest="d", containerfile="c", version="1")
    known = read_provenance(labels, created="2026", architecture="arm64")
    assert known is not None
    assert (known.digest, known.profile, known.source, known.revision) == ("d", "a", REPO.repo, COMMIT)
    assert read_provenance({"maintainer": "x"}, created=None, architecture=None) is None


def user(**facts: object) -> SimpleNamespace:
    return SimpleNamespace(**({"name": "m", "image": "localhost/m:1", "build": None, "nearest": None} | facts))


@pytest.mark.parametrize(
    ("facts", "here", "digests", "state"),
    [
        ({"image": None}, None, (None, None), ImageState.NOT_NEEDED),
        ({}, None, (None, None), ImageState.UNKNOWN),
        ({}, True, (None, None), ImageState.PULLED),
        ({"build": REPO}, True, ("d", "d"), ImageState.BUILT),
        ({"build": REPO}, True, ("d", "e"), ImageState.OLDER),
        ({"build": REPO}, False, (None, None), ImageState.TO_BUILD),
        ({"build": ImageBuild(unavailable="x")}, False, (None, None), ImageState.NOT_TO_BE_HAD),
        ({}, False, (None, None), ImageState.NOT_TO_BE_HAD),
        ({"image": "ghcr.io/a/b:1"}, False, (None, None), ImageState.TO_PULL),
    ],
)
def test_the_state_of_an_image(
    facts: dict[str, object], here: bool | None, digests: tuple[str | None, str | None], state: ImageState
) -> None:
    assert image_state(user(**facts), here=here, digest=digests[0], current=digests[1]) is state


def test_what_is_to_be_done_names_the_command_and_the_way_round() -> None:
    assert how_to_get(user(image="a/b:1")) == "Fetch it with `sparkdash pull m`."
    told = how_to_get(user(build=ImageBuild(unavailable="its source is not public"), nearest="n"))
    assert told.startswith("It cannot be built: its source is not public. n serves the same model")


def test_a_resumed_build_needs_no_room_for_what_it_has_already() -> None:
    build = REPO.replace(disk_gib=60.0)
    with pytest.raises(HostError, match=r"60\.0 GiB of disk; 50\.0 GiB are free"):
        check_room(build, "localhost/a:1", BOX, resumed=False)
    check_room(build, "localhost/a:1", BOX, resumed=True)
    with pytest.raises(AdmissionError, match=r"30\.0 GiB of memory; 20\.0 GiB are available"):
        check_room(REPO.replace(memory_gib=30.0), "localhost/a:1", BOX, resumed=True)


def test_a_base_whose_registry_is_silent_is_no_reason_to_refuse() -> None:
    check_bases([BaseState("a", here=False, fits=None), BaseState("b", here=True, fits=True)], BOX)
    with pytest.raises(HostError, match="b is for amd64; this box is arm64"):
        check_bases([BaseState("b", here=False, fits=False, found="amd64")], BOX)


def test_a_base_image_that_nobody_builds_and_no_registry_has_is_refused() -> None:
    """podman would ask a registry on this box for it, and tell of a connection that was refused."""
    lost = BaseState("localhost/base:1", here=False, fits=None)
    with pytest.raises(HostError, match=r"localhost/base:1 is not on this box, and no registry has it") as caught:
        check_bases([lost], BOX)
    assert caught.value.hint == "Name it under `needs` of the profile's `build:`, so that it is built first."
    check_bases([BaseState("localhost/base:1", here=True, fits=True)], BOX)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("nvidia/cuda:13.0", True),
        ("ubuntu", True),
        ("vllm-sm121:latest", True),
        ("docker.io/nvidia/cuda:13.0", False),
        ("localhost/a:1", False),
        ("box:5000/a", False),
        ("ghcr.io/a/b@sha256:0", False),
    ],
)
def test_a_base_image_without_its_registry_is_known(name: str, short: bool) -> None:
    """Which registry podman asks for it depends on the box, and on many none is asked."""
    assert BaseState(name, here=False, fits=None).is_short is short


def test_a_source_with_a_link_out_of_it_is_refused(tmp_path: Path) -> None:
    """The build would see files of this box."""
    (tmp_path / "source").mkdir()
    (tmp_path / "secret").write_text("FROM scratch\n")
    (tmp_path / "source" / "Containerfile").symlink_to(tmp_path / "secret")
    with pytest.raises(ProfileError, match="is a link that leads out of it"):
        source.locate(REPO, tmp_path / "source")


async def test_a_fetch_that_breaks_off_tells_why_and_not_how_far_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git's progress is longer than its reason."""
    git = tmp_path / "git"
    git.write_text(
        "#!/bin/sh\n"
        "[ $# -lt 9 ] || { for at in 7 8 9 10 11 12; do printf 'Receiving objects: %s%% (1/9)\\r' $at; done\n"
        "echo 'remote: fatal: unable to read'; echo 'fatal: the remote end hung up'\n"
        "printf 'Resolving deltas: 1%% (1/9)\\r'; exit 128; }\n"
    )
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(HostError) as caught:
        _ = [line async for line in source.fetch(REPO, tmp_path / "source")]
    said = "remote: fatal: unable to read fatal: the remote end hung up"
    assert caught.value.message == f"The source {REPO.repo} cannot be fetched: {said}."


def test_a_source_without_its_containerfile_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no docker/Containerfile or docker/Dockerfile\."):
        source.locate(REPO.replace(context="docker"), tmp_path)


def test_large_files_beside_a_profile_are_compared_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HASHED_BYTES", 10)
    build = ImageBuild(context="img")
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "Containerfile").write_text("FROM a\n")
    (tmp_path / "img" / "weights").write_bytes(b"1" * 20)
    before = source.local_files(tmp_path, build)
    (tmp_path / "img" / "weights").write_bytes(b"2" * 20)
    assert source.local_files(tmp_path, build) == before
    (tmp_path / "img" / "Containerfile").write_text("FROM b\n")
    assert source.local_files(tmp_path, build) != before


def test_one_build_of_an_image_at_a_time_and_five_logs_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path))
    folder = BuildFolder("localhost/a:1")
    with folder.held("localhost/a:1") as earlier:
        assert earlier is None
        with (
            pytest.raises(HostError, match="is being built already"),
            BuildFolder("localhost/a:1").held("localhost/a:1"),
        ):
            pass
    with folder.held("localhost/a:1") as earlier:
        assert earlier is not None  # it did not finish
        folder.finish(9)
    assert (folder.interrupted, folder.longest_took_s()) == (False, 9)
    for number in range(LOGS + 3):
        (folder.path / f"2026010{number}-000000.log").write_text("")
    folder.new_log().write_text("")
    assert len([*folder.path.glob("*.log")]) == LOGS


def test_edits_are_exact_and_never_leave_the_source() -> None:
    with pytest.raises(ValueError, match="leads out of the source"):
        ImageBuild(repo="https://git.example/a", commit=COMMIT, edits=(SourceEdit(file="../x", find="a", put="b"),))
    assert os.sep not in REPO.origin.rpartition("@")[2]
