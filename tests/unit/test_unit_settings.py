"""The owner's settings file."""

from pathlib import Path

import pytest

from sparkdash import settings
from sparkdash.errors import ProfileError


def test_defaults_hold_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing needs to be written to begin."""
    monkeypatch.delenv("SPARKDASH_PORT")
    assert settings.load_settings().port == settings.DEFAULT_PORT


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("port = 1\nreserve_gib = 4.5\n")
    monkeypatch.setenv("SPARKDASH_PORT", "2")
    assert settings.load_settings(file).port == 2
    assert settings.load_settings(file, port=3).port == 3
    assert settings.load_settings(file).reserve_gib == 4.5


@pytest.mark.parametrize(
    ("text", "named", "known"),
    [
        ("prot = 1\n", "prot", "port"),
        (
            "[policy.a]\npined = true",
            "policy.a.pined",
            "Did you mean pinned? Known keys: pinned, idle_ttl_s, max_concurrency, autocomplete.",
        ),
        ("[history]\nmax = 1", "history.max", "max_gib"),
    ],
)
def test_an_unknown_key_is_named_with_the_known_ones_of_its_table(
    tmp_path: Path, text: str, named: str, known: str
) -> None:
    """A misspelt key is an error, not a silent default."""
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ProfileError) as caught:
        settings.load_settings(file)
    assert f"{named}: unknown key" in caught.value.message
    assert known in (caught.value.hint or "")


def test_broken_toml_is_told_with_its_place(tmp_path: Path) -> None:
    """The parser's own line number reaches the owner."""
    file = tmp_path / "config.toml"
    file.write_text("port = \n")
    with pytest.raises(ProfileError, match="line 1"):
        settings.load_settings(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"engine_ports = [5, 1]", "engine_ports: the first port comes first"),
        (b"engine_ports = [0, 70000]", "engine_ports.0: must be at least 1"),
        (b"reserve_gib = inf", "reserve_gib: must be a number"),
        (b"[policy.x]\nidle_ttl_s = inf", "policy.x.idle_ttl_s: must be a number"),
        (b"contiguity = 'x'", "contiguity: must be one of "),
        (b"[any]\nx = []", "any.x: must be a list of at least 1"),
        (b"hf_home = 3", "hf_home: must be a path"),
        (b"# caf\xe9\n", "cannot be read: 'utf-8' codec"),
    ],
)
def test_what_would_fail_much_later_is_refused(tmp_path: Path, text: bytes, words: str) -> None:
    """No port for any engine, a reserve that no box has: told when the file is read, and without a list of keys."""
    file = tmp_path / "config.toml"
    file.write_bytes(text)
    with pytest.raises(ProfileError) as caught:
        settings.load_settings(file)
    assert words in caught.value.message
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("host", "beyond"),
    [("127.0.0.1", False), ("127.8.8.8", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True),
     ("192.168.1.2", True), ("spark.lan", True)],
)  # fmt: skip
def test_what_is_beyond_loopback(host: str, beyond: bool) -> None:
    """A name may resolve to anything."""
    assert settings.load_settings(host=host).beyond_loopback is beyond


def test_tls_needs_both_files(tmp_path: Path) -> None:
    """A certificate alone is a mistake, not a reason to serve in clear text."""
    file = tmp_path / "config.toml"
    file.write_text('tls_cert = "cert.pem"\n')
    with pytest.raises(ProfileError, match="tls_key is missing"):
        settings.load_settings(file)


@pytest.mark.parametrize(
    ("variable", "given", "words"),
    [(None, {"runtime": "foo"}, ("--runtime", "podman")), ("SPARKDASH_PORT", {}, ("SPARKDASH_PORT", "whole number"))],
)
def test_a_wrong_value_is_blamed_on_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, given: dict[str, str], words: tuple[str, ...]
) -> None:
    """Not on a file that does not exist, and not with a regular expression."""
    if variable:
        monkeypatch.setenv(variable, "abc")
    with pytest.raises(ProfileError) as caught:
        settings.load_settings(**given)
    assert all(word in caught.value.message for word in words)
    assert "config.toml" not in caught.value.message


def test_a_policy_holds_for_a_profile_or_its_family(tmp_path: Path) -> None:
    """The profile's own table before its family's; the box's idle time where neither gives one."""
    file = tmp_path / "config.toml"
    file.write_text(
        'idle_ttl_s = 600\n[policy.qwen]\npinned = true\n[policy."qwen/eagle3"]\nidle_ttl_s = 60\nmax_concurrency = 2\n'
    )
    found = settings.load_settings(file)
    assert (found.policy_of("qwen/mtp").pinned, found.policy_of("qwen/mtp").idle_ttl_s) == (True, 600)
    own = found.policy_of("qwen/eagle3")
    assert (own.pinned, own.idle_ttl_s, own.max_concurrency) == (False, 60, 2)
    assert found.policy_of("gpt") == settings.Policy(idle_ttl_s=600)
