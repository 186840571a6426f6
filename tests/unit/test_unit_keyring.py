"""The file of keys: whole or not at all, never a secret in it, and never anybody else's."""

import errno
import json
import stat
import threading
from datetime import datetime
from pathlib import Path

import pytest

from sparkdash import keyring
from sparkdash.errors import AdmissionError, ProfileError
from sparkdash.keyring import GONE_S, PREFIX, Key, Keyring, digest, expiry, matching, new_secret


def key(name: str, secret: str = "s", **more: object) -> Key:
    return Key.model_validate({"name": name, "sha256": digest(secret), **more})


def test_a_secret_is_random_and_only_its_digest_is_kept(tmp_path: Path) -> None:
    """256 bits after the prefix; the file has none of them, and only its owner may read it."""
    secret = new_secret()
    assert secret.startswith(PREFIX)
    assert len(secret.removeprefix(PREFIX)) == 43
    assert secret != new_secret()
    path = tmp_path / "new" / "keys.json"
    keyring.add_key(path, key("one", secret))
    path.with_suffix(".lock").chmod(
        0o644
    )  # as an older version left it: who may lock it keeps a key from being revoked
    keyring.add_key(path, key("two", "t"))
    assert stat.S_IMODE(path.with_suffix(".lock").stat().st_mode) == 0o600
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = matching(keyring.read_keys(path), secret)
    assert found is not None
    assert found.name == "one"
    assert matching(keyring.read_keys(path), secret + "x") is None


def test_names_are_unique_and_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keyring.add_key(path, key("one"))
    before = path.read_bytes()
    with pytest.raises(AdmissionError, match="already"):
        keyring.add_key(path, key("one", "t"))
    with pytest.raises(AdmissionError, match="no key 'two'"):
        keyring.revoke_key(path, "two")
    assert path.read_bytes() == before
    assert keyring.revoke_key(path, "one") == ()


def test_two_commands_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    threads = [threading.Thread(target=keyring.add_key, args=(path, key(f"k{i}"))) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.name for each in keyring.read_keys(path)} == {f"k{i}" for i in range(20)}


@pytest.mark.parametrize(("text", "words"), [
    ("{", "no list of keys"), ('{"keys": [{"name": "a", "sha256": "x"}]}', "keys.0.sha256"),
    ('{"keys": [{"name": "a", "sha256": "%s", "scope": 1}]}' % ("0" * 64), "keys.0.scope"),
])  # fmt: skip
def test_a_damaged_file_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ProfileError, match=words):
        keyring.read_keys(path)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keyring.add_key(path, key("one"))
    path.chmod(0o620)
    with pytest.raises(ProfileError, match="Others may write"):
        keyring.read_keys(path)


def test_a_change_on_disk_is_seen_and_a_bad_one_leaves_the_keys_of_before(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = Keyring(path)
    assert ring.look() == ()
    keyring.add_key(path, key("one"))
    assert [each.name for each in ring.look()] == ["one"]
    path.write_text("{ broken")
    with pytest.raises(ProfileError):
        ring.look()
    assert [each.name for each in ring.look()] == ["one"]
    assert [each.name for each in ring.last] == ["one"]


def test_a_file_that_is_taken_away_for_a_moment_lets_nobody_in(tmp_path: Path) -> None:
    """As editors do that write beside it and rename. Gone for good, there are no keys; each absence counts from its own begin."""
    path, now = tmp_path / "keys.json", [100.0]
    aside = path.with_name("keys.json~")
    keyring.add_key(path, key("one"))
    ring = Keyring(path, lambda: now[0])
    assert len(ring.look()) == 1
    for _ in range(2):
        path.rename(aside)
        assert len(ring.look()) == 1
        now[0] += GONE_S / 2
        assert len(ring.look()) == 1
        aside.rename(path)
        now[0] += 60
        assert len(ring.look()) == 1
    path.unlink()
    assert len(ring.look()) == 1
    now[0] += GONE_S
    assert ring.look() == ()
    keyring.add_key(path, key("two"))
    assert [each.name for each in ring.look()] == ["two"]
    keyring.revoke_key(path, "two")
    assert ring.look() == ()


def test_a_key_that_was_revoked_while_no_file_could_be_opened_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has no descriptor left can still see that the file changed. Said once, tried at each look."""
    path = tmp_path / "keys.json"
    keyring.add_key(path, key("one"))
    ring = Keyring(path)
    assert len(ring.look()) == 1
    keyring.revoke_key(path, "one")

    def full(_: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(keyring, "read_small_file", full)
        with pytest.raises(ProfileError, match="Too many open files"):
            ring.look()
        assert len(ring.look()) == 1
    assert ring.look() == ()


@pytest.mark.parametrize(("allowed", "names", "may"), [
    ((), ("a",), True), (("a",), ("a", "a"), True), (("fam",), ("fam/fast", "fam"), True),
    (("fam/*",), ("fam/fast", "fam"), True), (("coder",), ("alpha", "alpha", "coder"), True),
    (("alph",), ("alpha", "alpha", "coder"), False),
])  # fmt: skip
def test_which_models(allowed: tuple[str, ...], names: tuple[str, ...], may: bool) -> None:
    assert key("k", models=allowed).may_use(names) is may


def test_the_audit_log_keeps_its_size(tmp_path: Path) -> None:
    """A log that is too large is moved aside; every line is JSON, and only the owner's."""
    path = tmp_path / "state" / "audit.jsonl"
    for number in range(30):
        keyring.append_entry(path, {"n": number, "said": "ü\n"}, limit=200)
    old = path.with_name("audit.jsonl.old")
    lines = [json.loads(line) for line in (old.read_text() + (path.read_text() if path.exists() else "")).splitlines()]
    assert lines[-1]["n"] == 29
    assert old.stat().st_size < 300
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


DAY = datetime(2027, 3, 1).astimezone().timestamp()
"""In local time, as its owner means it."""


@pytest.mark.parametrize(
    ("text", "ends"),
    [("90d", 91 * 86_400), ("12h", 129_600), ("30m", 88_200), (" 2W ", 15 * 86_400), ("2027-03-01", DAY)],
)
def test_a_key_ends_after_a_span_or_at_the_beginning_of_a_day(text: str, ends: float) -> None:
    assert expiry(text, 86_400.0) == ends


@pytest.mark.parametrize("text", ["", "soon", "0d", "-3d", "3y", "99999999999d", "2020-01-01", "2027-13-01"])
def test_no_key_is_made_with_an_end_that_is_none_or_has_passed(text: str) -> None:
    """Such a key would never work, or never end although its owner believes so."""
    with pytest.raises(ValueError, match=r"."):
        expiry(text, 1.7e9)
