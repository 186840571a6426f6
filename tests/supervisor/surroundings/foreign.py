"""A server that is not ours: it lists models and refuses names that it does not know, as strict ones do."""

import asyncio
import json
from typing import Any

from aiohttp import web


class Foreign:
    """Serves below `prefix`; `cards` is what /v1/models lists, None where it has no such route."""

    def __init__(self, cards: list[dict[str, Any]] | None, *, prefix: str = "") -> None:
        self.cards = cards
        self.list_status = 200
        self.hangs = False
        """Whether the list is asked for in vain, as of a server that computes a long prompt."""
        self.asked: list[str] = []
        self._prefix = prefix
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._prefix}"

    async def start(self) -> "Foreign":
        """Listen; again on the same port."""
        app = web.Application()
        app.router.add_get(f"{self._prefix}/v1/models", self._models)
        app.router.add_post(f"{self._prefix}/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def end(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _models(self, _request: web.Request) -> web.Response:
        if self.hangs:
            await asyncio.Event().wait()
        if self.cards is None or self.list_status != 200:
            return web.json_response({"detail": "no"}, status=self.list_status if self.cards is not None else 404)
        return web.json_response({"object": "list", "data": self.cards})

    async def _chat(self, request: web.Request) -> web.Response:
        model = (await request.json())["model"]
        self.asked.append(model)
        if self.cards is not None and model not in [card["id"] for card in self.cards]:
            error = {"message": f"The model `{model}` does not exist.", "type": "NotFoundError", "code": 404}
            return web.json_response({"error": error}, status=404)
        words = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}}]})
        return web.Response(text=words, content_type="application/json")
