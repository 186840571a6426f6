"""Whole screens as text: ten states at six sizes, compared with files that were agreed on.

Write them anew with SPARKDASH_WRITE_SCREENS=1 and look at the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import SampleTaken
from sparkdash.domain.lease import RequestState
from sparkdash.domain.live import Energy, GatewayFigures, LiveRequest
from sparkdash.domain.liveness import Liveness, LivenessState, RepairStep
from sparkdash.domain.memory.guard import Floors, Guard, GuardKill, GuardLevel
from sparkdash.domain.metric import Gpu, Memory, NodeSample
from sparkdash.domain.node import NodeState, NodeStatus
from sparkdash.units import GIB

SIZES = ((60, 15), (80, 24), (120, 40), (159, 45), (160, 40), (200, 60))
AGREED = Path(__file__).parent / "screens"
BIG, EMBED = "qwen3.5-122b", "embed-0.6b"
PAIRS = {"╭": "╮", "╰": "╯", "├": "┤"}


def at_work(box: Any) -> Any:
    """One engine, two running requests with live figures, one that waits; energy is measured."""
    sample = box.sample()
    counted = GatewayFigures(in_flight=2, wh_per_1k=0.3)
    engines = {name: one.replace(gateway=counted) for name, one in sample.engines.items()}
    live = {
        "r1": LiveRequest(profile=box.gpt, output_tokens=312, estimated=False, tok_s=28.4, silent_s=0.1),
        "r2": LiveRequest(profile=box.gpt, output_tokens=88, tok_s=29.5, silent_s=14.0),
    }
    energy = Energy(sensor="GPU only", since=box.now - 9000, busy_wh=41.3, idle_wh=8.8)
    return box.snapshot(sample=sample.replace(engines=engines, requests=live, energy=energy))


def several(box: Any) -> Any:
    """Three engines serve, a fourth loads, a fifth failed; no request runs."""
    names = (box.gpt, box.coder, box.eagle)
    engines = {name: box.engine(name, ready_at=box.now - 600 * i) for i, name in enumerate(names, 1)}
    engines[BIG] = box.engine(BIG, EngineState.LOADING, ready_at=None, load_s=None)
    engines[EMBED] = box.engine(EMBED, EngineState.FAILED, ready_at=None, failure=box.failure)
    held = {box.gpt: 60 * GIB, box.coder: 12 * GIB, box.eagle: 13 * GIB, BIG: 8 * GIB}
    return box.snapshot(
        engines=engines, requests={}, swap=box.swap(target=BIG, evict=()), sample=box.sample(engines=held)
    )


def stalled(box: Any) -> Any:
    """The only load stands still."""
    return box.swapping(swap=box.swap(still_since=box.now - 130, gives_up_at=box.now + 170))


def stuck(box: Any) -> Any:
    """The engine writes nothing, and is being repaired."""
    live = Liveness(
        state=LivenessState.STUCK, why="2 running, no token for 2m05s", since=box.now - 165, step=RepairStep.CANCEL,
        step_since=box.now - 40,
    )  # fmt: skip
    return box.snapshot(engines={box.gpt: box.engine(liveness=live)})


def guarded(box: Any) -> Any:
    """The guard holds loads back, and killed an engine before."""
    kill = GuardKill(at=box.now - 300, profile=EMBED, available=3 * GIB, reason="3.0 GiB available, floor 4.0.")
    floors = Floors(warn=12 * GIB, hold=8 * GIB, kill=5 * GIB)
    sample = box.sample(available=7 * GIB, free=2 * GIB, page_cache=5 * GIB)
    return box.snapshot(guard=Guard(mode="act", floors=floors, level=GuardLevel.HOLD, kills=(kill,)), sample=sample)


def idle(box: Any) -> Any:
    """Nothing runs and nothing is known."""
    return box.snapshot(engines={}, requests={}, recent=(), sample=None, swaps=())


def failed(box: Any) -> Any:
    """The only engine died while it loaded."""
    died = box.engine(box.coder, EngineState.FAILED, failure=box.failure, ready_at=None, load_s=None)
    return box.snapshot(engines={box.coder: died}, requests={})


def two_boxes(box: Any) -> Any:
    """The other box fell silent."""
    state = NodeState(name="spark2", status=NodeStatus.UNREACHABLE, since=box.now - 62, reason="ssh timed out.")
    memory = Memory(total=int(121.7 * GIB), available=21 * GIB, free=8 * GIB, page_cache=13 * GIB, reserve=10 * GIB)
    found = NodeSample(at=box.now - 65, memory=memory, gpu=Gpu(utilization=0.9, power_w=58.0))
    return box.snapshot(nodes={"spark2": state}, sample=box.sample().replace(nodes={"spark2": found}))


def crowded(box: Any) -> Any:
    """Thirty requests of many clients, one alone decodes; the roofline of its engine is known."""
    states = [RequestState.STREAMING, *[RequestState.WAITING] * 29]
    requests = [
        box.request(f"q{i}", state, client=f"client-with-a-name-{i}", position=i or None, started_at=box.now - i)
        for i, state in enumerate(states)
    ]
    sample = box.sample()
    spark = sample.replace(gpu=sample.gpu.replace(name="NVIDIA GB10"))
    engines = {box.gpt: box.engine(most_steps_s=99.0)}
    return box.snapshot(engines=engines, sample=spark, requests={one.id: one for one in requests})


STATES: dict[str, Callable[[Any], Any]] = {
    "at-work": at_work, "several": several, "swap": lambda box: box.swapping(), "stalled": stalled, "stuck": stuck,
    "guard": guarded, "idle": idle, "failed": failed, "two-boxes": two_boxes, "crowded": crowded,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
async def test_every_state_looks_as_agreed(stage: Any, box: Any, link: Any, size: tuple[int, int]) -> None:
    """No frame is cut, no name is lost, and nothing moved that nobody wanted to move."""
    link.log[box.gpt] = ["loading", *(f'"POST /v1/chat/completions HTTP/1.1" 200 OK {i}' for i in range(9)), "ready"]
    wrong: list[str] = []
    async with stage(box.snapshot(sample=None), size=size) as on:
        past = (SampleTaken(sample=box.sample(at=box.now - at, decode=40.0 + at % 19)) for at in range(300, 0, -2))
        await on.happen(*past)
        for seq, (name, state) in enumerate(STATES.items(), 1):
            await on.tell(state(box).replace(seq=1000 * seq))
            wrong += [f"{name}: {fault}" for fault in faults(on.lines, size, on.app.view.snapshot.engines)]
            wrong += unlike(f"{name}-{size[0]}x{size[1]}", on.text)
    assert not wrong, "\n".join(wrong)


def unlike(name: str, text: str) -> list[str]:
    """The first line that differs from the agreed screen."""
    path = AGREED / f"{name}.txt"
    if os.environ.get("SPARKDASH_WRITE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text.rstrip()}\n")
    agreed, seen = path.read_text().splitlines(), text.rstrip().splitlines()
    for number, (before, now) in enumerate(zip(agreed, seen, strict=False), 1):
        if before != now:
            return [f"{name}, line {number}:\n- {before}\n+ {now}"]
    return [] if len(agreed) == len(seen) else [f"{name}: {len(agreed)} lines before, {len(seen)} now"]


def faults(lines: list[str], size: tuple[int, int], engines: dict[str, Any]) -> list[str]:
    """What must not be on any screen."""
    found = [f"line {y} is {len(line)} wide" for y, line in enumerate(lines) if len(line) != size[0]]
    found += [] if len(lines) == size[1] else [f"{len(lines)} lines"]
    found += [f"open edge: {line}" for line in lines if not _closed(line)]
    found += [
        f"a frame that is not closed below: column {x}, line {y}" for y, x in _corners(lines) if not _side(lines, y, x)
    ]
    text = "\n".join(lines)
    found += [f"{name} is nowhere" for name in engines if not _seen(name, text)]
    return found


def _closed(line: str) -> bool:
    """Whether each upper or lower edge of a line ends with its own corner."""
    return all(line.count(left) == line.count(right) for left, right in PAIRS.items())


def _corners(lines: list[str]) -> list[tuple[int, int]]:
    return [(y, x) for y, line in enumerate(lines) for x, glyph in enumerate(line) if glyph in "╭╮"]


def _side(lines: list[str], y: int, x: int) -> bool:
    """Whether a frame's side leads from its upper corner to a lower one."""
    for line in lines[y + 1 :]:
        if line[x] in "╰╯":
            return True
        if line[x] not in "│├┤":
            return False
    return False


def _seen(name: str, text: str) -> bool:
    """Whether a name stands there, whole, cut in its middle, or counted."""
    cut = re.escape(name[:2]) + r"\S*…\S*" + re.escape(name[-2:])
    return name in text or re.search(cut, text) is not None or " more: " in text
