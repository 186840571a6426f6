"""Responses that are kept: `store`, `previous_response_id` and `background` of /v1/responses, and the routes by an id.

One file for each response, in one folder; the oldest go first. Rule: a key finds its own responses alone.
"""

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sparkdash.domain.request import RequestState
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.channel import InnerChannel
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.answer_text import KeptAnswer
from sparkdash.gateway.protocol.frames import response_object
from sparkdash.gateway.protocol.prepare import Edits, rewrite_body
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.relay import passthrough
from sparkdash.gateway.relay.admitted import RequestContext
from sparkdash.gateway.relay.dispatch import LEFT_OUT
from sparkdash.gateway.translate.response import needs_translation
from sparkdash.limits import shown
from sparkdash.log import LOG
from sparkdash.paths import read_small_file, replace_file
from sparkdash.units import MIB

RESPONSES = "/v1/responses"
_BY_ID = re.compile(r"/v1/responses/([^/]+)(?:/(cancel|input_items))?/?")
_UNKEPT = re.compile(rb'"store"\s*:\s*false')
_CONTINUES = b'"previous_response_id"'
_JSON = [(b"content-type", b"application/json")]
_METHODS = {None: ("GET", "DELETE"), "cancel": ("POST",), "input_items": ("GET",)}
_UNFINISHED = frozenset({"queued", "in_progress"})
Entry = dict[str, Any]
"""`response`: the object as the client got it; `input`: all items of the conversation before it."""


class ResponseFiles:
    """Entries in files of `folder`. Calls block, and may come from any thread."""

    def __init__(self, folder: Path, limit_mib: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_mib * MIB
        self._sizes: dict[Path, int] | None = None
        """Bytes of each file, the oldest first; None until the folder was read."""
        self._lock = threading.Lock()

    def read(self, owner: str, response_id: str) -> Entry | None:
        try:
            return dict(json.loads(read_small_file(self._file(owner, response_id), self._limit_bytes)))
        except (OSError, ValueError):
            return None

    def write(self, owner: str, entry: Entry) -> None:
        content, file = json.dumps(entry).encode(), self._file(owner, entry["response"]["id"])
        with self._lock:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(file, content)
                self._count(file, len(content))
            except OSError as error:  # a full disk fails no answer
                LOG.warning("a response could not be kept", why=error.strerror)

    def delete(self, owner: str, response_id: str) -> None:
        self._file(owner, response_id).unlink(missing_ok=True)

    def _file(self, owner: str, response_id: str) -> Path:
        return self._folder / (hashlib.sha256(f"{owner}\0{response_id}".encode()).hexdigest()[:40] + ".json")

    def _count(self, file: Path, size: int) -> None:
        if self._sizes is None:
            found = ((one, one.stat()) for one in self._folder.glob("*.json"))
            self._sizes = {one: told.st_size for one, told in sorted(found, key=lambda each: each[1].st_mtime)}
        self._sizes.pop(file, None)
        self._sizes[file] = size
        while sum(self._sizes.values()) > self._limit_bytes:
            oldest = next(iter(self._sizes))
            oldest.unlink(missing_ok=True)
            del self._sizes[oldest]


class Responses:
    """Keeps responses for clients whose engine keeps none; handlers of the routes."""

    def __init__(self, files: ResponseFiles) -> None:
        self._files = files
        self._written: dict[tuple[str, str], Entry] = {}
        """Entries on their way to the disk."""
        self._behind: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Tasks of responses in the background, by owner and id."""

    async def create(self, deps: Deps, exchange: Exchange) -> None:
        """Answer `POST /v1/responses`; keep the response where it is to be kept."""
        asked: Entry = {}

        async def before(context: RequestContext) -> bool:
            asked.update(await self._prepared(context))
            return bool(asked.get("background")) and await self._answered_behind(context, asked)

        await passthrough.relay_request(deps, exchange, before=before)
        if asked and exchange.kept is not None and (response := exchange.kept.response()):
            await self._keep(_owner(exchange), _entry(asked, response))

    async def _prepared(self, context: RequestContext) -> Entry:
        """Put the earlier conversation into the request; return the request if its response is to be kept."""
        share, exchange = context.body_share, context.exchange
        if (share.body.find(_CONTINUES) < 0 and _UNKEPT.search(share.body)) or not (asked := _parsed(share.body)):
            return {}
        keeps = _keeps(context, asked)
        edits = _kept_edits(context, asked) if keeps else Edits()
        if earlier := await self._earlier(_owner(exchange), asked):
            asked["input"] = [*earlier["input"], *earlier["response"]["output"], *asked["input"]]
            edits = Edits({**edits.put, "input": asked["input"]}, drop=edits.drop | {"previous_response_id"})
        if (body := rewrite_body(share.body, edits)) is not share.body:
            share.reserve(len(body))
            share.body = body
        if keeps and exchange.kept is None:
            exchange.kept = KeptAnswer(context.deps.new_id())
        return asked if keeps else {}

    async def _earlier(self, owner: str, asked: Entry) -> Entry | None:
        """Read the response that the request continues; None where it is not kept here."""
        previous = asked.get("previous_response_id")
        entry = await self._read(owner, str(previous)) if previous else None
        if entry is not None and entry["response"]["status"] in _UNFINISHED:
            raise AdmissionError(f"The response {shown(str(previous))} has not ended.", code="response_unfinished")
        return entry

    async def _answered_behind(self, context: RequestContext, asked: Entry) -> bool:
        """Answer that the response is queued, and have it made. A stream is answered as any other."""
        exchange = context.exchange
        if asked.get("stream"):
            exchange.add_extra_header(LEFT_OUT, b"background")
            return False
        assert exchange.kept is not None  # noqa: S101 - what is kept has it
        response_id, deps = f"resp_{exchange.kept.request_id}", context.deps
        response = response_object(response_id, str(asked.get("model")), int(deps.clock()), "queued")
        entry = _entry(asked, response | {"background": True, "store": True})
        await self._keep(_owner(exchange), entry)
        work = self._make(deps, exchange, context.body_share.body, entry)
        name = _owner(exchange), response_id
        task = self._behind[name] = asyncio.create_task(work, name="background response")
        task.add_done_callback(lambda _task: self._behind.pop(name, None))
        await exchange.answer(200, problems.encode_json(entry["response"]), _JSON)
        return True

    async def _make(self, deps: Deps, exchange: Exchange, body: bytes, entry: Entry) -> None:
        """Have an engine make a response in the background."""
        channel = InnerChannel(body)
        inner = Exchange(exchange.head, channel, exchange.key, collected=True)
        inner.kept = exchange.kept
        await passthrough.relay_request(deps, inner)
        told = inner.kept.response() if inner.kept else None
        response = {**entry["response"], **(told or _failed(channel.answer))}
        for key in ("id", "background", "store", "previous_response_id"):
            response[key] = entry["response"][key]
        await self._keep(_owner(exchange), {**entry, "response": response})

    async def by_id(self, deps: Deps, exchange: Exchange) -> None:
        """Answer a route by a response's id; one that is not kept here is left to the engine."""
        found, owner = _BY_ID.fullmatch(exchange.head.path), _owner(exchange)
        is_made = found is not None and (owner, found[1]) in self._behind  # looked at first: a finished one is on disk
        entry = await self._read(owner, found[1]) if found else None
        if found is None or entry is None:
            await passthrough.relay_request(deps, exchange)
        elif exchange.method not in _METHODS[found[2]]:
            await exchange.refuse_method(exchange.head.path, _METHODS[found[2]], Dialect.RESPONSES)
        else:
            try:
                told = await self._told(deps, exchange, entry, found[2], is_made=is_made)
            except SparkdashError as error:
                await exchange.refuse(error, Dialect.RESPONSES)
            else:
                await exchange.answer(200, problems.encode_json(told), _JSON)

    async def _told(self, deps: Deps, exchange: Exchange, entry: Entry, what: str | None, *, is_made: bool) -> Entry:
        query, response = dict(parse_qsl(exchange.query)), entry["response"]
        if what == "input_items":
            return _item_list(entry["input"], ascending=query.get("order") == "asc")
        if query.get("stream") == "true":
            raise AdmissionError("A kept response is no stream.", code="not_a_stream", hint="Ask without `stream`.")
        if what == "cancel" and not response["background"]:
            raise AdmissionError("Only a response with `background` can be cancelled.", code="not_in_background")
        if exchange.method == "GET":
            return _current(deps, response, is_made=is_made)
        name = _owner(exchange), response["id"]
        if (task := self._behind.get(name)) is not None:
            with suppress(AdmissionError):  # it ends at this moment
                deps.running.cancel(_row_id(response))
            await asyncio.wait({task})
        if what == "cancel":
            return dict((await self._read(*name) or entry)["response"])
        await asyncio.to_thread(self._files.delete, *name)
        return {"id": response["id"], "object": "response", "deleted": True}

    async def _keep(self, owner: str, entry: Entry) -> None:
        name = owner, entry["response"]["id"]
        self._written[name] = entry  # a client may go on at once
        try:
            await asyncio.to_thread(self._files.write, owner, entry)
        finally:
            if self._written.get(name) is entry:
                del self._written[name]

    async def _read(self, owner: str, response_id: str) -> Entry | None:
        return self._written.get((owner, response_id)) or await asyncio.to_thread(self._files.read, owner, response_id)


_INTERRUPTED = {"code": "server_error", "message": "The daemon ended before the response was made. Ask again."}


def _owner(exchange: Exchange) -> str:
    return exchange.key.name if exchange.key else ""


def _keeps(context: RequestContext, asked: Mapping[str, Any]) -> bool:
    """Whether the response is kept here: where the engine keeps its own, only for a client that says `store`.

    Of several replicas only one would know an earlier response.
    """
    profile, store = context.profile, asked.get("store")
    here = profile is None or profile.replicas > 1 or _is_translated(context) or not adapter_of(profile).keeps_responses
    return here if store is None else store is True


def _is_translated(context: RequestContext) -> bool:
    profile = context.profile
    return profile is not None and needs_translation(profile, None, context.route) is True


def _kept_edits(context: RequestContext, asked: Entry) -> Edits:
    """Return what an engine need not know, and what our own translation is to repeat."""
    return Edits({"store": True} if _is_translated(context) else {}, drop=frozenset({"background"} & asked.keys()))


def _parsed(body: bytes) -> Entry:
    """Read a request, its input as a list; empty for what no engine takes either."""
    try:
        asked = dict(json.loads(body.decode("utf-8-sig")))
    except (ValueError, TypeError, RecursionError):
        return {}
    if not isinstance(asked.get("input"), list):
        asked["input"] = [{"type": "message", "role": "user", "content": asked.get("input")}]
    return asked


def _row_id(response: Entry) -> str:
    return str(response["id"]).removeprefix("resp_")


def _entry(asked: Entry, response: Entry) -> Entry:
    told = {"background": False} | response | {"previous_response_id": asked.get("previous_response_id")}
    return {"response": told, "input": asked["input"]}


def _failed(body: bytearray) -> Entry:
    """Read what a client in the foreground would have got."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        error = {"code": "server_error", "message": "The engine's answer was no response."}
    if error.get("code") == "request_cancelled":
        return {"status": "cancelled"}
    return {"status": "failed", "error": {"code": error.get("code"), "message": error.get("message")}}


def _current(deps: Deps, response: Entry, *, is_made: bool) -> Entry:
    """Return a response with its present state. `is_made`: whether an engine has it, or is waited for."""
    if response["status"] not in _UNFINISHED:
        return response
    if not is_made:
        return response | {"status": "failed", "error": _INTERRUPTED}
    row = deps.bus.snapshot.requests.get(_row_id(response))
    waits = row is None or row.state is RequestState.WAITING
    return response if waits else response | {"status": "in_progress"}


def _item_list(items: list[Any], *, ascending: bool) -> Entry:
    """List the items, each as the SDKs' types have it."""
    told = [_dressed(number, item) for number, item in enumerate(items)]
    told = told if ascending else told[::-1]
    ends = {"first_id": told[0]["id"], "last_id": told[-1]["id"]} if told else {}
    return {"object": "list", "data": told, "has_more": False, **ends}


def _dressed(number: int, item: Entry) -> Entry:
    made: Entry = {"id": f"item_{number}", "type": "message"} | item
    if isinstance(made.get("content"), str):
        kind = "output_text" if made.get("role") == "assistant" else "input_text"
        made["content"] = [{"type": kind, "text": made["content"]}]
    return made
