"""llama-swap's own routes, for its companions: what runs, unloading, and loading by a GET."""

from typing import Any

from sparkdash.domain.engine import EngineState
from sparkdash.errors import SparkdashError
from sparkdash.gateway.admission.access import visible_snapshot
from sparkdash.gateway.apis.unloading import unload_model, wanted_name
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.channel import ClientGone
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems

RUNNING = "/running"
_STATES = {
    EngineState.CREATING: "starting", EngineState.LOADING: "starting", EngineState.WARMING: "starting",
    EngineState.READY: "ready", EngineState.DRAINING: "stopping", EngineState.STOPPING: "stopping",
}  # fmt: skip
_JSON = [(b"content-type", b"application/json")]
_TEXT = [(b"content-type", b"text/plain")]


async def serve_running(deps: Deps, exchange: Exchange) -> None:
    """List the engines that run, load or stop, as far as the key may see them."""
    snapshot = visible_snapshot(exchange.key, deps.bus.snapshot)
    running = [
        _entry(deps, name, state)
        for name, engine in snapshot.engines.items()
        if (state := _STATES.get(engine.state)) is not None
    ]
    await exchange.answer(200, problems.encode_json({"running": running}), _JSON)


def _entry(deps: Deps, name: str, state: str) -> dict[str, Any]:
    profile, ttl_s = deps.bus.snapshot.profile(name), deps.settings.policy_of(name).idle_ttl_s
    about = (profile.about if profile else None) or ""
    told = {"model": name, "state": state, "ttl": int(ttl_s or 0)}
    return told | {"cmd": "", "proxy": "", "name": "", "description": about}


async def serve_command(deps: Deps, exchange: Exchange) -> None:
    """Answer /unload, /unload/MODEL and /upstream/MODEL, which loads it, with `OK`."""
    _, word, model = (*exchange.head.path.rstrip("/").split("/", 2), "")[:3]
    try:
        name = deps.catalog().find(wanted_name(deps, exchange, model)).name if model else None
        if word == "unload":
            await unload_model(deps, exchange, name)
        elif name is not None:
            deps.exclusive.admit(exchange.head.token)
            async with deps.supervisor.lease(name, request_id=deps.new_id(), on_wait=lambda _place: None):
                pass
    except ClientGone:
        return
    except SparkdashError as error:
        await exchange.refuse(error)
        return
    await exchange.answer(200, b"OK", _TEXT)
