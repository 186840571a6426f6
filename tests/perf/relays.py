"""The relays that are measured, each in a process of its own: a bare one, sparkdash's daemon, nginx, Go's and
litellm's proxies; and the engine behind them. What is not installed is left out, and named.
"""

import asyncio
import multiprocessing as mp
import os
import shutil
import socket
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, cast

import httptools
import raw
import uvloop


class Relay(Protocol):
    """Something that serves on a port and whose CPU time can be read."""

    port: int
    share: float
    """Share of the unary requests that it gets."""

    def pid(self) -> int: ...
    def end(self) -> None: ...


class Child:
    """A Python process of this file that serves on a port."""

    share = 1.0

    def __init__(self, target: Any, *args: Any) -> None:
        pipe, theirs = mp.Pipe()
        self._process = mp.Process(target=target, args=(theirs, *args), daemon=True)
        self._process.start()
        self.port: int = pipe.recv()

    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def end(self) -> None:
        self._process.terminate()
        self._process.join()


class Program:
    """Another program that serves on `port`; ready when that answers."""

    def __init__(self, argv: list[str], port: int, *, share: float = 1.0, **env: str) -> None:
        self.port, self.share = port, share
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, **env})
        for _ in range(1200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self.end()
        raise SystemExit(f"{argv[0]} does not serve on port {port}.")

    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


def add_others(found: dict[str, Relay], args: Namespace, port: int, folder: Path) -> None:
    """All relays that can be had here; those that cannot are named."""
    found["bare uvloop"] = Child(serve_bare, port)
    found["sparkdash"] = daemon(port, folder)
    for name, start, program in (("nginx", nginx, args.nginx), ("Go", go, args.go), ("litellm", litellm, args.litellm)):
        if shutil.which(program):
            found[name] = start(program, port, folder)
        else:
            sys.stderr.write(f"{name} is left out: {program} is not here.\n")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def nginx(program: str, engine_port: int, folder: Path) -> Relay:
    """As one would set it up for this: no buffering, connections to the engine kept."""
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(
        f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
        events {{ worker_connections 8192; }}
        http {{
          access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
          uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 1000000;
          upstream engine {{ server 127.0.0.1:{engine_port}; keepalive 256; keepalive_requests 1000000; }}
          server {{
            listen 127.0.0.1:{port};
            location / {{
              proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
            }}
          }}
        }}"""
    )
    return Program([program, "-c", str(file), "-p", str(folder)], port)


GO = """package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func main() {
	engine, _ := url.Parse(os.Args[2])
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 0, 512, time.Hour
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(engine) },
		Transport:     transport,
		FlushInterval: -1,
	}
	panic(http.ListenAndServe(os.Args[1], proxy))
}
"""
"""`net/http/httputil`'s proxy, which llama-swap's relay is as well; it meters nothing and reads no body."""


def go(program: str, engine_port: int, folder: Path) -> Relay:
    """Built here; GOMAXPROCS as it comes."""
    port, source = free_port(), folder / "proxy.go"
    source.write_text(GO)
    built = {**os.environ, "GOCACHE": str(folder / "go-cache"), "GO111MODULE": "off", "GOFLAGS": "-buildvcs=false"}
    subprocess.run([program, "build", "-o", folder / "goproxy", source], check=True, env=built, cwd=folder)
    return Program([str(folder / "goproxy"), f"127.0.0.1:{port}", f"http://127.0.0.1:{engine_port}"], port)


def litellm(program: str, engine_port: int, folder: Path) -> Relay:
    port, file = free_port(), folder / "litellm.yaml"
    file.write_text(
        "model_list: [{model_name: alpha, litellm_params: {model: hosted_vllm/alpha, "
        f"api_base: 'http://127.0.0.1:{engine_port}/v1', api_key: x}}}}]\n"
        "litellm_settings: {telemetry: false}\n"
    )
    argv = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}
    open_to_all = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # like the others here
    return Program(argv, port, share=0.1, **quiet, **open_to_all)


def daemon(engine_port: int, folder: Path) -> Relay:
    """`sparkdash serve` with its supervisor, books and telemetry, before a server that it did not start."""
    port = free_port()
    argv = [sys.executable, "-m", "sparkdash", "serve", "--port", str(port), "--runtime", "process"]
    return Program(argv, port, **environment(folder, engine_port))


def environment(folder: Path, engine_port: int) -> dict[str, str]:
    """Variables of a daemon with folders of its own and one profile, `alpha`: a server that it did not start."""
    profiles = folder / "config" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "alpha.yaml").write_text(
        f"profile: alpha\nabout: the benchmark's engine\nengine: openai\nurl: http://127.0.0.1:{engine_port}\n"
    )
    return {f"SPARKDASH_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "STATE", "RUNTIME")}


async def serve(pipe: Connection, port: int) -> None:
    pipe.send(port)
    await asyncio.Event().wait()


def serve_engine(pipe: Connection, chunks: int, rate: float) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: raw.Engine(chunks, rate), "127.0.0.1", 0, backlog=512)
        await serve(pipe, server.sockets[0].getsockname()[1])

    uvloop.run(run())


class BareEngine(asyncio.Protocol):
    """Connection of the bare relay to the engine; `idle` gets it back at the end of each answer."""

    def __init__(self, idle: "list[BareEngine]") -> None:
        self.idle = idle
        self.client: BareClient
        self.is_whole = False
        self.parser = httptools.HttpResponseParser(self)

    def on_message_complete(self) -> None:
        self.is_whole = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        self.client.transport.write(data)
        if self.is_whole:
            self.is_whole = False
            self.idle.append(self)


class BareClient(asyncio.Protocol):
    """Connection of a client to the bare relay."""

    def __init__(self, engine_port: int, idle: list[BareEngine]) -> None:
        self.engine_port, self.idle = engine_port, idle
        self.engine: BareEngine | None = None
        """Connection of the request under way, or of the last one."""
        self.request = b""
        self.is_whole = False
        self.parser = httptools.HttpRequestParser(self)

    def on_message_complete(self) -> None:
        self.is_whole = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.engine is not None and self.engine.client is self and self.engine not in self.idle:
            self.engine.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        self.request += data
        if self.is_whole:
            self.is_whole = False
            request, self.request = self.request, b""
            if self.idle:
                self.ask(self.idle.pop(), request)
            else:
                asyncio.get_running_loop().create_task(self.connect(request))

    async def connect(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, engine = await loop.create_connection(lambda: BareEngine(self.idle), "127.0.0.1", self.engine_port)
        self.ask(engine, request)

    def ask(self, engine: BareEngine, request: bytes) -> None:
        self.engine, engine.client = engine, self
        engine.transport.write(request)


def serve_bare(pipe: Connection, engine_port: int) -> None:
    """The least that Python can do: find the ends of requests and answers, and pass the bytes on as they are."""

    async def run() -> None:
        idle: list[BareEngine] = []
        server = await asyncio.get_running_loop().create_server(
            lambda: BareClient(engine_port, idle), "127.0.0.1", 0, backlog=512
        )
        await serve(pipe, server.sockets[0].getsockname()[1])

    uvloop.run(run())
