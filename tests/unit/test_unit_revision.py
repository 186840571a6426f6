"""An edit of config.toml while the daemon runs: what holds at once, and what is told."""

from __future__ import annotations

from pathlib import Path

from sparkdash.daemon.config_file import LIVE, SettingsReader, compare_settings
from sparkdash.domain.event import Notice
from sparkdash.errors import ProfileError
from sparkdash.settings import Policy, Settings, load_settings

NOW = Settings()


def test_policy_holds_at_once_and_what_the_daemon_was_built_with_waits() -> None:
    """Each key is told on its side; what did not change is not."""
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
    """A key that was renamed must not silently wait."""
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
