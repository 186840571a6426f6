"""llama-swap's routes, as its companions use them."""

from typing import Any

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged


async def test_what_runs_and_loads_is_listed(house: Any, tools: Any) -> None:
    house.bus.publish(EngineChanged(engine=tools.ready("beta/fast", EngineState.LOADING)))
    running = (await house.client.get("/running")).json()["running"]
    assert [(one["model"], one["state"]) for one in running] == [("alpha", "ready"), ("beta/fast", "starting")]


async def test_a_get_loads_and_unloads(house: Any) -> None:
    """One model or all; by another page's picture or link it does neither."""
    for path in ("/upstream/coder", "/unload/alpha", "/unload"):
        link = await house.client.get(path, headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
        assert link.status_code == 403
        answer = await house.client.get(path)
        assert (answer.status_code, answer.text) == (200, "OK")
    assert house.supervisor.leases == ["alpha"]
    assert house.supervisor.calls == [("stop", "alpha"), ("stop", None)]


async def test_another_model_or_method_changes_nothing(house: Any) -> None:
    assert (await house.client.get("/unload/nope")).json()["error"]["code"] == "model_not_found"
    assert (await house.client.post("/unload")).status_code == 404
    assert house.supervisor.calls == []
