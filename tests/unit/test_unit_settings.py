"""The owner's settings file: read, listed for screens, changed by a value, and edited while the daemon runs."""

from pathlib import Path

import pytest

from sparkdash import settings
from sparkdash.daemon.config_file import LIVE, SettingsReader, change_setting, compare_settings, list_settings
from sparkdash.domain.event import Notice
from sparkdash.errors import ProfileError
from sparkdash.settings import Policy, Settings, load_settings, set_toml_value


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defaults hold without a file: nothing needs to be written to begin."""
    file = tmp_path / "config.toml"
    file.write_text("port = 1\nreserve_gib = 4.5\n")
    monkeypatch.setenv("SPARKDASH_PORT", "2")
    assert settings.load_settings(file).port == 2
    assert settings.load_settings(file, port=3).port == 3
    assert settings.load_settings(file).reserve_gib == 4.5
    monkeypatch.delenv("SPARKDASH_PORT")
    assert settings.load_settings().port == settings.DEFAULT_PORT


POLICY_KEYS = "Did you mean pinned? Known keys: pinned, idle_ttl_s, max_concurrency, autocomplete."


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (b"prot = 1\n", "prot: unknown key", "port"),
        (b"[policy.a]\npined = true", "policy.a.pined: unknown key", POLICY_KEYS),
        (b"[history]\nmax = 1", "history.max: unknown key", "max_gib"),
        (b"engine_ports = [5, 1]", "engine_ports: the first port comes first", None),
        (b"engine_ports = [0, 70000]", "engine_ports.0: must be at least 1", None),
        (b"reserve_gib = inf", "reserve_gib: must be a number", None),
        (b"[policy.x]\nidle_ttl_s = inf", "policy.x.idle_ttl_s: must be a number", None),
        (b"contiguity = 'x'", "contiguity: must be one of ", None),
        (b"[any]\nx = []", "any.x: must be a list of at least 1", None),
        (b"hf_home = 3", "hf_home: must be a path", None),
        (b"# caf\xe9\n", "cannot be read: 'utf-8' codec", None),
        (b"port = \n", "line 1", None),
        (b'tls_cert = "cert.pem"', "tls_key is missing", "https needs both, tls_cert and tls_key."),
    ],
)
def test_a_mistake_and_what_would_fail_much_later_are_refused(
    tmp_path: Path, text: bytes, words: str, hint: str | None
) -> None:
    """No port for any engine, a reserve that no box has: told when the file is read; an unknown key with the known ones."""
    file = tmp_path / "config.toml"
    file.write_bytes(text)
    with pytest.raises(ProfileError) as caught:
        settings.load_settings(file)
    assert words in caught.value.message
    assert hint in caught.value.hint if hint else caught.value.hint is None


@pytest.mark.parametrize(
    ("host", "beyond"),
    [("127.0.0.1", False), ("127.8.8.8", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True),
     ("192.168.1.2", True), ("spark.lan", True)],
)  # fmt: skip
def test_what_is_beyond_loopback(host: str, beyond: bool) -> None:
    """A name may resolve to anything."""
    assert settings.load_settings(host=host).beyond_loopback is beyond


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


def test_every_setting_has_a_meaning_and_a_default(tmp_path: Path) -> None:
    now = Settings.model_validate({"any": {"pair": ["a", "b"]}, "reserve_gib": 12})
    found = list_settings(tmp_path / "config.toml", now, Settings)
    rows = {one.name: one for one in found.settings}
    assert list(rows) == list(Settings.model_fields)
    assert [name for name, row in rows.items() if not row.meaning] == []
    assert (rows["reserve_gib"].value, rows["reserve_gib"].default, rows["reserve_gib"].waits) == ("12", "10", "10")
    assert (rows["any"].value, rows["any"].editable) == ("pair", False)
    assert rows["history"].value == "{ max_gib = 1 }"


@pytest.mark.parametrize(("key", "value", "text"), [
    (["guard"], "warn", 'guard = "warn"\n'), (["preload"], "a, b/c", 'preload = ["a", "b/c"]\n'),
    (["drain_s"], "3", "drain_s = 3\n"), (["history"], "{ max_gib = 2 }", "history = { max_gib = 2 }\n"),
    (["policy", "a/b", "pinned"], "true", '\n[policy."a/b"]\npinned = true\n'),
])  # fmt: skip
def test_a_value_is_written_as_a_person_types_it(tmp_path: Path, key: list[str], value: str, text: str) -> None:
    """The comments stay, and the file can be read by the next daemon."""
    file = tmp_path / "config.toml"
    file.write_text("# mine\n", "utf-8")
    change_setting(file, key, value)
    assert file.read_text("utf-8") == "# mine\n" + text
    load_settings(file)
    change_setting(file, key, None)
    assert load_settings(file) == Settings() or load_settings(file).policy_of("a/b") == Settings().policy_of("a/b")


@pytest.mark.parametrize(("key", "value"), [(["guard"], "perhaps"), (["unknown"], "1"), (["port"], "99999")])
def test_a_value_that_is_not_valid_changes_nothing(tmp_path: Path, key: list[str], value: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n", "utf-8")
    with pytest.raises(ProfileError, match=key[0]):
        change_setting(file, key, value)
    assert file.read_text("utf-8") == "# mine\n"


TEXT = """\
# my box

reserve_gib = 10   # keep this
ports = [
  1,
  2,
]

[policy."a/b"] # mine
pinned = true  # yes

[[hooks]]
command = ["x"]
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        (["reserve_gib"], "12", "reserve_gib = 10", "reserve_gib = 12"),
        (["ports"], "[3]", "ports = [\n  1,\n  2,\n]", "ports = [3]"),
        (["ports"], None, "ports = [\n  1,\n  2,\n]\n", ""),
        (["drain_s"], "3", "  2,\n]\n", "  2,\n]\ndrain_s = 3\n"),
        (["policy", "a/b", "idle_ttl_s"], "9", "# yes\n", "# yes\nidle_ttl_s = 9\n"),
        (["policy", "a/b", "pinned"], None, "pinned = true  # yes\n", ""),
        (["policy", "c", "pinned"], "true", "[[hooks]]", "[policy.c]\npinned = true\n[[hooks]]"),
        (["absent"], None, "", ""),
        (["reserve_gib"], "10", "", ""),
    ],
)
def test_one_value_changes_and_the_rest_of_the_text_stays(
    path: list[str], value: str | None, old: str, new: str
) -> None:
    assert set_toml_value(TEXT, path, value) == TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "path", "value", "new"),
    [
        ("# mine\n\n[sets]\n", "a", "1", "# mine\na = 1\n\n[sets]\n"),
        ("", "a", '"b"', 'a = "b"\n'),
        ("a.b = 1\n", "a.b", "2", "a.b = 2\n"),
        ("a = { b = 1 }\n", "a.b", "2", "a = { b = 2 }\n"),
    ],
    ids=["below the head of a file", "an empty file", "a dotted key", "an inline table"],
)
def test_a_value_keeps_the_layout_that_is_there(text: str, path: str, value: str, new: str) -> None:
    assert set_toml_value(text, path.split("."), value) == new


def test_a_comment_within_the_old_value_is_not_lost() -> None:
    with pytest.raises(ProfileError) as caught:
        set_toml_value("x = [ # why\n 1 ]\n", ["x"], "2")
    assert caught.value.code == "toml_layout"


NOW = Settings()


def test_policy_holds_at_once_and_what_the_daemon_was_built_with_waits() -> None:
    read = Settings(reserve_gib=3, policy={"a": Policy(pinned=True)}, port=9000, body_s=5)
    found = compare_settings(NOW, read)
    assert (found.taken, found.waiting) == (("reserve_gib", "policy"), ("port", "body_s"))
    assert found.settings == Settings(reserve_gib=3, policy={"a": Policy(pinned=True)})


def test_a_guard_is_not_switched_off_or_on() -> None:
    """The guard is a thread, begun with the daemon; `warn` and `act` are one word to it."""
    assert compare_settings(NOW, Settings(guard="off")).waiting == ("guard",)
    assert compare_settings(Settings(guard="off"), NOW).waiting == ("guard",)
    assert compare_settings(NOW, Settings(guard="warn")).taken == ("guard",)


def test_every_live_key_is_a_setting() -> None:
    assert Settings.model_fields.keys() >= LIVE


async def test_each_state_of_the_file_is_told_of_once() -> None:
    """The file is read again whenever any profile is edited, too."""
    told: list[Notice] = []
    file: list[Settings | ProfileError] = [Settings(port=9000)]

    def load() -> Settings:
        if isinstance(file[0], ProfileError):
            raise file[0]
        return file[0]

    rereading = SettingsReader(load, told.append)
    assert [await rereading.read(NOW) for _ in range(2)] == [None, None]
    file[0] = ProfileError("config.toml: prot: unknown.", code="settings_invalid")
    assert [await rereading.read(NOW) for _ in range(2)] == [None, None]
    file[0] = NOW
    assert await rereading.read(NOW) is None
    file[0] = Settings(reserve_gib=1)
    assert await rereading.read(NOW) == file[0]
    assert [notice.code for notice in told] == ["restart_needed", "settings_invalid", "settings_read"]
    assert "port" in told[0].text
    assert "The settings from before stay in force." in told[1].text


async def test_a_file_that_was_taken_away_leaves_the_defaults_and_says_so(tmp_path: Path) -> None:
    told: list[Notice] = []
    file = tmp_path / "config.toml"
    rereading = SettingsReader(lambda: load_settings(file), told.append)
    assert await rereading.read(Settings(guard="warn", port=9000)) == Settings(port=9000)
    assert [notice.text for notice in told] == [
        "config.toml was edited: port will apply after a restart of the daemon.",
        "The settings were read again, and apply now: guard.",
    ]
