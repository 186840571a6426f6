"""A box that looks after itself: a default, and a name for several models, with a daemon and real processes."""

from collections.abc import Callable
from typing import Any

from daemons import ready_engines

PROFILE = "profile: {name}\nengine: sim\nsim: {{load_s: 0.1, memory_gib: 0.1, time_scale: 50}}\n"
SETTINGS = '\n[any]\neither = ["first", "third"]\n'


def test_a_name_means_what_runs_and_the_box_returns_to_its_default(new_daemon: Callable[..., Any]) -> None:
    spark = new_daemon(runtime="process", min_dwell_s=0, drain_s=1)
    for name in ("first", "second", "third"):
        spark.write(name, PROFILE.format(name=name))
    spark.configure(lambda text: text + SETTINGS)
    spark.start()
    for name in ("first", "second"):
        assert spark.sparkdash("use", name, "--yes").returncode == 0
    assert ready_engines(spark.state()) == {"first", "second"}
    assert spark.sparkdash("stop", "--all").returncode == 0
    assert spark.sparkdash("use", "third").returncode == 0  # else the box is left as a person stopped it
    assert {item["id"]: item["root"] for item in spark.get("/v1/models")["data"]}["either"] == "third"

    spark.configure(lambda text: 'default = "second"\ndefault_after_s = 1\n' + text)
    spark.post("/api/reload", {})
    state = spark.until(lambda now: now["swaps"][0]["target"] == "second")
    assert (state["swaps"][0]["cause"], ready_engines(state)) == ("default", {"second", "third"})
    assert state["default"] == {"profile": "second", "after_s": 1.0}
    assert "second, after 1" in spark.sparkdash("status").stdout
