"""Textual's driver of a terminal, but keys are read in the event loop.

Textual has a thread that looks for keys ten times a second: a ninth of what an idle dashboard takes of the processor.
"""

import os
import signal
import stat
from codecs import getincrementaldecoder
from contextlib import suppress

from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver


class LoopDriver(LinuxDriver):
    """Driver of this process's terminal."""

    def run_input_thread(self) -> None:
        self._parser, self._decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        self._loop.call_soon_threadsafe(self._begin_reading)

    def _begin_reading(self) -> None:
        with suppress(PermissionError):  # of a file or /dev/null, which have no keys; Textual's thread would spin
            self._loop.add_reader(self.fileno, self._read)

    def disable_input(self) -> None:
        self._loop.remove_reader(self.fileno)
        super().disable_input()

    def _read(self) -> None:
        try:
            data = os.read(self.fileno, 4096)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._loop.remove_reader(self.fileno)
            if not stat.S_ISFIFO(os.fstat(self.fileno).st_mode):
                signal.signal(signal.SIGHUP, signal.SIG_DFL)  # end as by SIGHUP: under nohup none came
                signal.raise_signal(signal.SIGHUP)
        if text := self._decode(data):  # part of a character decodes to "", which would end the parser
            for message in self._parser.feed(text):
                self.process_message(message)
        self._loop.call_later(ESCAPE_DELAY, self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        """Take an Escape that nothing followed for the key alone."""
        for message in self._parser.tick():
            self.process_message(message)
