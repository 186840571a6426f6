"""A stand-in for llama-server builds that know one flag for how files are read: `llama_server.py FLAG …`.

As the real ones it ends at a flag that it does not know. With FLAG `none` it knows neither, and prints no help.
"""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tiny_engine

VALUED = ["--model", "--host", "--port", "--alias", "--ctx-size", "--parallel", "--threads"]
BARE = ["--help", "--metrics", "--slots"]


def main(flag: str, words: list[str]) -> None:
    valued = [*VALUED, *(["--load-mode"] if flag == "--load-mode" else [])]
    bare = [*BARE, *(["--no-mmap"] if flag == "--no-mmap" else [])]
    if words == ["--help"]:
        if flag == "none":
            sys.exit("llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file")
        print("\n".join([*(f"{name:<40}does something" for name in bare), *(f"{name} N" for name in valued)]))
        return
    given = iter(words)
    values = {}
    for word in given:
        if word not in [*valued, *bare]:
            sys.exit(f"error: invalid argument: {word}")
        values[word] = next(given) if word in valued else ""
    tiny_engine.Handler.names = (values["--alias"],)
    server = ThreadingHTTPServer((values["--host"], int(values["--port"])), tiny_engine.Handler)
    print(f"listening on http://{values['--host']}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
