"""A tiny `vllm serve`: real HTTP on one socket, up in a few milliseconds, and one animal of the zoo on request.

The animal is named by FAKE_ENGINE in its environment. Nothing is imported that is neither written in C nor loaded anyway:
it starts for 10 ms of CPU, where socket and signal make it 30.
"""

import os
import sys
import time
from _signal import SIG_IGN, SIGKILL, SIGSTOP, SIGTERM, signal
from _socket import SO_REUSEADDR, SOL_SOCKET, socket

ANIMAL = os.environ.get("FAKE_ENGINE", "")
LAST_WORDS = {
    "out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
    "unknown-flag": "vllm serve: error: unrecognized arguments: --speculative-model",
    "no-words": "",
}

signal(SIGTERM, lambda *_: sys.exit(0))  # as PID 1 of a container it would not hear it otherwise
if ANIMAL == "wont-stop":
    signal(SIGTERM, SIG_IGN)
if ANIMAL == "forks-orphans" and not os.fork():
    os.setsid()
    signal(SIGTERM, SIG_IGN)
    while True:
        time.sleep(60)
if ANIMAL == "leaks-memory":
    told, tell = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)  # its child is nobody's now
        signal(SIGTERM, SIG_IGN)
        kept = b"w" * (64 << 20)
        os.write(tell, b"x")
        time.sleep(600)
        os._exit(0)
    os.wait()
    os.read(told, 1)
print("INFO loading", flush=True)
if ANIMAL in LAST_WORDS:
    sys.exit(LAST_WORDS[ANIMAL] or 3)
if ANIMAL == "killed":
    os.kill(os.getpid(), SIGKILL)
if ANIMAL == "never-ready":
    time.sleep(600)
if ANIMAL == "slow":
    for step in range(10):
        print(f"Loading safetensors checkpoint shards: {step}0% Completed | {step}/10", flush=True)
        time.sleep(0.1)

server = socket()
server.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
server.listen()
print("INFO:     Application startup complete.", flush=True)
posts = 0
while True:
    client = socket(fileno=server._accept()[0])
    request = client.recv(65536)
    if ANIMAL == "hangs-up":
        client.close()
        continue
    if request.startswith(b"POST"):
        posts += 1
        if ANIMAL == "freezes" and posts > 1:  # its warm-up lives
            os.kill(os.getpid(), SIGSTOP)
        word = b"" if ANIMAL == "lies-about-health" else b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
        kind, body = b"text/event-stream", word + b"data: [DONE]\n\n"
    else:
        kind, body = b"application/json", b'{"version": "0.1", "data": []}'
    status = b"503 X" if ANIMAL == "unwell" else b"200 OK"
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    client.sendall(head % (status, kind, len(body)) + body)
    client.close()
    if ANIMAL == "dies-at-first-request" and request.startswith(b"POST"):
        sys.exit("KeyError: 'prompt_embeds'")
