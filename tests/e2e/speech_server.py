"""A speech server that loads until a file appears, with a WebSocket that echoes."""

import asyncio
import sys
from pathlib import Path

from aiohttp import web

PORT, NAME, GATE = int(sys.argv[1]), "speech-model", Path(sys.argv[2])


async def models(_request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": NAME}]})


async def healthy(_request: web.Request) -> web.Response:
    return web.Response(status=200 if await asyncio.to_thread(GATE.exists) else 503)


async def realtime(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.send_json({"type": "session.created", "model": request.query["model"]})
    async for message in socket:
        await socket.send_str(message.data)
    return socket


async def main() -> None:
    app = web.Application()
    app.router.add_get("/health", healthy)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/realtime", realtime)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT).start()
    print("speech server: listens", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
