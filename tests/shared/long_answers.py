"""Clients in threads of their own beside a daemon: one with a long answer, one who asks for its health all the time."""

import http.client
import json
import select
import threading
import urllib.error
import urllib.request

LIMIT_S = 60
LOOK_EVERY_S = 0.02


class LongAnswer(threading.Thread):
    """A stream of many tokens under way; `begun` is set with the first of them, or where it has failed."""

    def __init__(self, url: str, model: str) -> None:
        super().__init__(daemon=True)
        body = {"model": model, "stream": True, "max_tokens": 1_000_000, "messages": [{"role": "user", "content": "?"}]}
        self._request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        self.begun = threading.Event()
        self.lines: list[str] = []
        self.start()

    def run(self) -> None:
        try:
            with urllib.request.urlopen(self._request, timeout=LIMIT_S) as answer:
                for line in answer:
                    self.lines.append(line.decode())
                    if line.startswith(b"data:"):
                        self.begun.set()
        except urllib.error.HTTPError as error:  # refused before a word was said
            self.lines.append(error.read().decode())
        finally:
            self.begun.set()

    def whole(self) -> str:
        """All that was said, once it is over."""
        self.join(LIMIT_S)
        return "".join(self.lines)


class Pulse(threading.Thread):
    """Somebody who asks /health all the time.

    `longest` counts looks of LOOK_EVERY_S that brought no answer: while the whole process stands still, as it may on a busy
    machine, nobody looks.
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._over = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)
        while not self._over.is_set():
            waited = 0.0
            line.request("GET", "/health")
            while not select.select([line.sock], [], [], LOOK_EVERY_S)[0]:
                waited += LOOK_EVERY_S
            answer = line.getresponse()
            assert answer.status == 200
            answer.read()
            self.longest = max(self.longest, waited)
            self._over.wait(LOOK_EVERY_S)
        line.close()

    def end(self) -> None:
        self._over.set()
        self.join()
