"""Ticks: lines that a node's stream of figures sends, and the rates of its links. Pure."""

from collections.abc import Iterable

from pydantic import ConfigDict, ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.domain.metric import Gpu, LinkSample, Memory

LINE_LIMIT = 64 * 1024


class _Told(Frozen):
    # a guard outlives its daemon: its reports may have what this version does not know
    model_config = ConfigDict(extra="ignore")


class PortCount(_Told):
    """Counters of an interface or RDMA port at one moment. None is unknown."""

    name: str
    received: int | None = None
    sent: int | None = None
    errors: int | None = None
    up: bool | None = None
    gbit: float | None = None
    unit: int = 1
    """Bytes that one count stands for."""
    index: int | None = None
    """Kernel's number of the interface; another one means that it was made anew."""

    @property
    def rdma(self) -> bool:
        return self.unit > 1


class GuardAct(_Told):
    """Act of a node's memory guard by its own report: a kill, or a warning in its place."""

    id: str
    clock: float
    """Time by the node's clock, Unix seconds."""
    container: str | None = None
    """Container that it killed; None where it may only warn."""
    profile: str | None = None
    available: int
    floor: int
    pressure: float | None = None
    fall: float = 0.0
    """Bytes a second by which available memory fell."""
    processes: int | None = None


class AgentTick(_Told):
    """Figures of one line of the stream."""

    clock: float
    """Node's clock, Unix seconds."""
    at: float
    """Seconds since the node's boot."""
    id: int | None = None
    """Number of the command that it answers."""
    memory: Memory | None = None
    gpu: Gpu | None = None
    interfaces: tuple[PortCount, ...] = ()
    rdma: tuple[PortCount, ...] = ()
    engines: dict[str, int] = {}
    """Memory of our engines' containers there, by name."""
    guarded: bool = False
    kills: tuple[GuardAct, ...] = ()
    held: tuple[str, ...] = ()
    """Our containers that are paused, or of which a process is stopped."""
    reached: dict[str, int | None] = {}
    """For each probed address the losses among its last answers; None where it does not answer."""


def read_tick(line: str) -> AgentTick | None:
    """Read one line; None for one that is no tick, as a login script may write some."""
    try:
        return AgentTick.model_validate_json(line)
    except ValidationError:
        return None


LEAST_S = 0.15
"""Shortest interval of a rate: over less, one burst looks like a rate."""


class LinkRates:
    """Rates of all ports of one connection. Not thread-safe."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, bool], tuple[float, PortCount, LinkSample]] = {}

    def add(self, at: float, ports: Iterable[PortCount]) -> tuple[LinkSample, ...]:
        """Return the traffic of each port since the reading before; `at` is seconds since the box's boot."""
        self._before = {(port.name, port.rdma): self._counted(at, port) for port in ports}
        return tuple(sample for _, _, sample in self._before.values())

    def _counted(self, at: float, port: PortCount) -> tuple[float, PortCount, LinkSample]:
        first = at, port, LinkSample(name=port.name, rdma=port.rdma)
        then, before, last = self._before.get((port.name, port.rdma), first)
        seconds = at - then
        if 0 < seconds < LEAST_S:
            return then, before, last
        if seconds <= 0 or port.index != before.index:
            before = port.replace(received=None, sent=None)
        received, sent = _grown(before.received, port.received), _grown(before.sent, port.sent)
        sample = last.replace(
            received_bytes_s=None if received is None else received * port.unit / seconds,
            sent_bytes_s=None if sent is None else sent * port.unit / seconds,
            received_bytes=_sum(last.received_bytes, received, port.unit),
            sent_bytes=_sum(last.sent_bytes, sent, port.unit),
            errors=_sum(last.errors, _new_errors(before.errors, port.errors), 1),
            up=port.up,
            rate_gbit_s=port.gbit,
        )
        return at, port, sample


def _grown(before: int | None, now: int | None) -> int | None:
    """Counts between two readings; None where one is unknown, or the counter began anew."""
    return now - before if before is not None and now is not None and now >= before else None


def _new_errors(before: int | None, now: int | None) -> int | None:
    return now if now is not None and now < (before or 0) else _grown(before, now)


def _sum(total: int | None, more: int | None, unit: int) -> int | None:
    return total if more is None else (total or 0) + more * unit
