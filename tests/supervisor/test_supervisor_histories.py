"""Random histories of a whole supervisor: whatever happens in whatever order, it lives, and nothing is left over.

A history mixes requests that come, leave and vanish, orders of people, engines that hang, die and stand still, a runtime that is
slow or fails, edited files, a server that is not ours and fails, memory that others take, and daemons that crash. `SPARKDASH_HISTORIES=N` plays
N of them instead of a few.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from surroundings.box import Behaviour
from surroundings.foreign import Foreign
from surroundings.house import make_catalog, make_profile

from sparkdash.domain.profile import EngineKind
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError, HostError, SparkdashError
from sparkdash.settings import Policy
from sparkdash.supervisor import repair
from sparkdash.supervisor.decide.judge import EngineSignals, HealthAnswer, Thresholds

HISTORIES = int(os.environ.get("SPARKDASH_HISTORIES", "4"))
STEPS = 150
GIB = 2**30
BY_SIZE = {"a": 30, "b": 10, "c": 60, "d": 80, "e": None, "f": 15}
ON_STUCK = {"f": "tell"}
HASTY = Thresholds(
    slow_s=5, stopped_s=8, voted_s=10, plain_s=15, young_s=0, recovery_s=15, gap_s=120
)  # fmt: skip
FIXED = {"kv-cache-memory-bytes": "1G"}
"""An engine with this argument may load beside others; `d` and `e` load alone."""


class History:
    """One random history. `house` is the supervisor in its surroundings, `far` the server that is not ours."""

    def __init__(self, house: Any, far: Foreign, seed: int) -> None:
        self.house, self.far = house, far
        self._random = random.Random(seed)
        self._frozen: dict[str, int] = {}
        """Profiles whose engines stand still, and how many of the processes are stopped."""
        self._requests: list[Any] = []
        self._orders: list[asyncio.Future[Any]] = []
        self._runtime = {name: getattr(house.runtime, name) for name in ("pids", "stop", "start")}
        self._happenings: list[tuple[float, Callable[[], Awaitable[None] | None]]] = [
            (35, self._ask), (15, self._leave), (6, self._use), (6, self._stop), (3, self._cancel), (3, self._kill),
            (2, self._edit), (3, self._freeze), (2, self._thaw), (2, self._release), (2, self.misbehave), (1, self._fill_memory), (2, self._flip_server),
            (0.5, self._crash), (22.5, self._pass_time),
        ]  # fmt: skip

    async def play(self) -> None:
        """STEPS things happen, in an order and at times that the seed decides."""
        self.misbehave()
        self._slow_down()
        await self._open()
        weights, happenings = zip(*self._happenings, strict=True)
        for _ in range(STEPS):
            with suppress(AdmissionError):
                done = self._random.choices(happenings, weights)[0]()
                if done is not None:
                    await done
            self.check_alive()

    def check_alive(self) -> None:
        if self.house._running.done():
            raise AssertionError("the supervisor has ended") from self.house._running.exception()

    async def calm_down(self) -> None:
        """Fix everything, end every request and order, and stop what runs."""
        self.house.reader.others = 0
        for name, real in self._runtime.items():
            setattr(self.house.runtime, name, real)
        for name in BY_SIZE:
            self.house.runtime.zoo[name] = Behaviour(load_s=1)
        for container in self.house.runtime.here.values():
            container.behaviour.never_ready = False
        self._thaw()
        self.far.list_status = 200
        self._end_requests()
        await self.house.settled()
        self.house.supervisor.replace_catalog(make_catalog(*self._profiles()))
        for order in self._orders:
            (result,) = await self.house.clock.drive(asyncio.gather(order, return_exceptions=True))
            assert result is None or not isinstance(result, Exception) or isinstance(result, SparkdashError), result
        await self.house.settled()
        with suppress(AdmissionError):
            await self.house.clock.drive(self.house.supervisor.stop(None))
        await self.house.settled()
        self.check_alive()

    def misbehave(self) -> None:
        """From their next start on the engines are other ones: slow, never ready, dying, empty."""
        for name in BY_SIZE:
            self.house.runtime.zoo[name] = Behaviour(
                load_s=self._random.choice([0.5, 3, 15]),
                never_ready=self._random.random() < 0.08,
                dies_after_s=self._random.choice([None] * 8 + [2.0]),
                empty_answers=self._random.random() < 0.03,
            )

    async def _open(self, edits: int = 0) -> None:
        policy = {"b": Policy(idle_ttl_s=20), "c": Policy(pinned=True), "f": Policy(max_concurrency=2)}
        await self.house.open(
            *self._profiles(edits),
            no_progress_s=30,
            policy=policy,
            preload=("a", "b"),
            look=self._look,
            thresholds=HASTY,
        )

    def _profiles(self, edits: int = 0) -> list[Any]:
        made = [
            make_profile(
                name, gib=gib, on_stuck=ON_STUCK.get(name, "restart"), **({} if name in "de" else {"args": FIXED})
            )
            for name, gib in BY_SIZE.items()
        ]
        made.append(make_profile("far", gib=None, engine=EngineKind.OPENAI, image=None, models={}, url=self.far.url))
        if not edits:
            return made
        kept = [each for each in made if self._random.random() < 0.9]
        return [each.replace(env={"EDIT": str(edits)}) if self._random.random() < 0.3 else each for each in kept]

    def _slow_down(self) -> None:
        """Half of the runtime's calls take their time, and one start in twenty fails."""
        for name, real in self._runtime.items():
            setattr(self.house.runtime, name, self._slowed(name, real))

    def _slowed(self, name: str, real: Any) -> Any:
        async def slowed(*given: Any, **more: Any) -> Any:
            if self._random.random() < 0.5:
                await self.house.clock.sleep(self._random.choice([0.1, 1, 4] if name != "pids" else [0.1, 0.5]))
            if name == "start" and self._random.random() < 0.05:
                raise HostError("podman failed.", code="runtime_failed")
            return await real(*given, **more)

        return slowed

    def _any_profile(self) -> str:
        return self._random.choice([*BY_SIZE, "far", "auto"])

    def _ask(self) -> None:
        client, batch = self._random.choice([None, "x", "y"]), self._random.random() < 0.2
        self._requests.append(self.house.ask(self._any_profile(), client=client, batch=batch))

    def _leave(self) -> None:
        if self._requests:
            self._end(self._requests.pop(self._random.randrange(len(self._requests))))

    def _end(self, request: Any) -> None:
        if request.has_lease:
            request._go.set()
        else:
            request.task.cancel()

    def _end_requests(self) -> None:
        for request in self._requests:
            self._end(request)
        self._requests.clear()

    def _order(self, order: Awaitable[Any]) -> None:
        self._orders.append(asyncio.ensure_future(order))

    def _use(self) -> None:
        self._order(self.house.supervisor.use(self._any_profile(), cause=SwapCause.USER))

    def _stop(self) -> None:
        self._order(self.house.supervisor.stop(self._random.choice([None, self._any_profile(), self._any_profile()])))

    def _cancel(self) -> None:
        self._order(self.house.supervisor.cancel())

    def _freeze(self) -> None:
        """An engine stands still, with none, some or all of its processes stopped."""
        if engines := list(self.house.supervisor.engines):
            name = self._random.choice(engines)
            self._frozen[name] = self._random.choice([0, 0, 1, 3])

    def _thaw(self) -> None:
        self._frozen.clear()

    async def work_fault(self, _tools: Any, profile: Any, _url: str, *, limit_s: float, **_how: Any) -> str | None:
        """The short generation that shows whether a stuck engine works again."""
        await self.house.clock.sleep(self._random.choice([0.1, limit_s]))
        return "no answer" if profile.name in self._frozen and self._random.random() < 0.7 else None

    async def _look(self, profile: Any, engine: Any, lag_s: float = 0.0) -> EngineSignals:
        now, stopped = self.house.clock.monotonic(), self._frozen.get(profile.name)
        if self._random.random() < 0.05:
            raise HostError("The box does not tell.", code="box_silent")
        held = self.house.supervisor.engines[profile.name].in_flight
        return EngineSignals(
            at=now,
            held=held,
            health=self._random.choice([HealthAnswer.WELL, HealthAnswer.SILENT]) if stopped else HealthAnswer.WELL,
            answers=True,
            running=float(held) or float(stopped == 0 and self._random.random() < 0.5),
            waiting=0.0,
            progress=(0.0 if profile.name in self._frozen else now,),
            processes=3,
            stopped=stopped or 0,
            lag_s=lag_s,
        )

    async def _kill(self) -> None:
        if running := self.house.runtime.running():
            await self.house.runtime.kill(self._random.choice(running), "boom")

    def _edit(self) -> None:
        self.house.supervisor.replace_catalog(make_catalog(*self._profiles(edits=self._random.randrange(1, 1000))))

    async def _release(self) -> None:
        await self.house.supervisor.release(None)

    def _fill_memory(self) -> None:
        self.house.reader.others = self._random.choice([0, 0, 40, 100]) * GIB

    def _flip_server(self) -> None:
        self.far.list_status = 503 if self.far.list_status == 200 else 200

    async def _crash(self) -> None:
        for request in self._requests:
            request.task.cancel()
        self._requests.clear()
        await self.house.crash()
        for order in self._orders:
            order.cancel()
        self._orders.clear()
        await self._open(edits=self._random.randrange(1000))

    async def _pass_time(self) -> None:
        for _ in range(self._random.choice([1, 1, 3, 20])):
            self.house.clock.step()
            await (self.house.clock.rest() if self._random.random() < 0.5 else asyncio.sleep(0))


@pytest.fixture
async def far() -> AsyncIterator[Foreign]:
    """The server that is not ours; it ends after the house that asks it."""
    server = await Foreign([{"id": "m"}]).start()
    yield server
    await server.end()
    for _ in range(3):  # sockets are closed in the turns after the one that was told so
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_a_random_history_leaves_a_supervisor_that_lives_and_empty_records(
    far: Foreign, house: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(house, far, seed)
    monkeypatch.setattr(repair, "work_fault", history.work_fault)
    await history.play()
    await history.calm_down()
    records = house.supervisor._actor._scheduler.records
    assert not records.swaps
    assert not records.queue
    assert not records.leases
    assert not [one for one in house.supervisor.incidents().incidents if one.ended_at is None]
    assert house.runtime.running() == []
    await house.supervisor.release(None)
    await house.settled()
    for name in ("a", "far"):
        await house.leased(name)
    assert house.runtime.running() == ["a"]
