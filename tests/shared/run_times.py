"""Where a test run spends its time: seconds waited and processor seconds, by room and by file.

A pytest plugin: `--times` prints the tables at the end of the run, whether or not tests run side by side, and names
the rooms to run again after failures or an interruption.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

FILES_SHOWN = 25


def _processor_s() -> float:
    """Processor time of this process and of the children that it has waited for; containers are not among them."""
    return sum(os.times()[:4])


class RunTimes:
    """Measures each phase of each test where it runs, and adds up where the reports arrive."""

    def __init__(self) -> None:
        self._mark = _processor_s()
        self._files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self._unpassed: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Expect the tests of the workers, each of which collects all of them."""
        self._unpassed |= set(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Expect the tests of a run without workers."""
        self._unpassed |= {item.nodeid for item in session.items}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Give the report of a phase the processor time since the phase before; xdist sends it along."""
        report = yield
        now = _processor_s()
        report.processor_s, self._mark = now - self._mark, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase to its file, and take a test that passed off the list."""
        if report.when == "call" and not report.failed:
            self._unpassed.discard(report.nodeid)
        elif report.failed:
            self._unpassed.add(report.nodeid)
        file = self._files[report.nodeid.partition("::")[0]]
        file[0] += report.when == "call"
        file[1] += report.duration
        file[2] += getattr(report, "processor_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the rooms, then the files that take longest."""
        rooms: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for name, figures in self._files.items():
            room = _room(name)
            rooms[room] = [a + b for a, b in zip(rooms[room], figures, strict=True)]
        for title, rows in (("time by room", rooms), ("time by file", self._files)):
            terminalreporter.section(title)
            terminalreporter.write_line(f"{'':<58}{'tests':>6}{'total s':>9}{'processor s':>13}{'waiting s':>11}")
            shown = sorted(rows.items(), key=lambda row: -row[1][1])
            for name, (count, total, processor) in shown[: None if rows is rooms else FILES_SHOWN]:
                waiting = max(total - processor, 0)
                terminalreporter.write_line(f"{name:<58}{count:>6.0f}{total:>9.1f}{processor:>13.1f}{waiting:>11.1f}")
        if left := sorted({_room(test) for test in self._unpassed}):
            terminalreporter.write_line(f"Not passed. Again: make full ROOMS={','.join(left)}")


def _room(test: str) -> str:
    return test.split("/")[1]
