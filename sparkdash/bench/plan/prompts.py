"""Prompts of each repetition of a cell, cut to an exact number of tokens.

Rule: no two prompts of a launch begin alike, so that no prefix cache knows one. Pure.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from sparkdash.bench.plan import texts
from sparkdash.bench.plan.suites import CLASSES, UNFORCED, Chat, chats_digest
from sparkdash.bench.run import CellKey, Kind

Count = Callable[[str, str], Awaitable[int]]
"""(class of text, user message) -> tokens of the whole prompt as the engine counts it, chat template included."""
_Count = Callable[[str], Awaitable[int]]

FILLERS = (" so", " a", ".", ";", "-")
"""Filler for the last tokens: a word of one or two tokens, then marks of one."""
TOKENS_PER_PIECE = 1.4
CLOSE = 8
"""Largest number of tokens that filler adds."""
SEARCH = 10
"""Most counts of the search; three or four are usual, and as many for the filler."""


@dataclass(frozen=True, slots=True)
class PromptIndex:
    """Index of a request: repetition, stream, and attempt."""

    rep: int
    stream: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt to send: a user's message, or a chat's own keys (messages, tools)."""

    id: str
    """Identity of the text, equal in all arms and launches."""
    content: str | Mapping[str, Any]
    tokens: int | None = None


def text_class(key: CellKey, rep: int) -> str:
    return key.text or CLASSES[rep % len(CLASSES)]


def prompt_id(seed: int, key: CellKey, place: PromptIndex) -> str:
    """Return the text's id, without nonce and cut."""
    return _hash(f"prompt|{_source(seed, key, place)}")[:12]


async def build_prompt(seed: int, key: CellKey, place: PromptIndex, count: Count) -> Prompt:
    """Build one request's prompt of `key.context` tokens; 0 leaves only the question.

    In a prefix cell all repetitions share what comes before the question.
    """
    source = _source(seed, key, place)
    shared = key.kind is Kind.PREFIX
    body_seed = f"{seed}|{key.context}|shared" if shared else source
    nonce = _hash(f"nonce|{key.output}|{body_seed}|{0 if shared else place.attempt}|")[:12]
    kind = text_class(key, place.rep)
    text, ask = "prose" if shared else kind, texts.closing_question(kind, source)
    prompt = Prompt(prompt_id(seed, key, place), f"[{nonce}] {ask}")
    if not key.context:
        return prompt
    words = tuple(islice(texts.text_pieces(text, body_seed), key.context))

    def content(pieces: int, fill: str) -> str:
        return f"[{nonce}]\n{''.join(words[:pieces]).strip()}{fill}\n\n{ask}"

    return await cut_prompt(prompt, content, key.context, count, text)


def chat_prompt(chats: Sequence[Chat], place: PromptIndex, salt: str) -> Prompt:
    """Return the captured chats in turn, each with a mark at its head that no prefix cache knows.
    `salt` differs between launches; behind the mark the text is equal in all arms. The first tool is marked too, since
    many templates write the tools before the first message.
    """
    chat = chats[(place.rep + place.stream) % len(chats)]
    mark = _hash(f"nonce|{salt}|{place.rep}|{place.stream}|{place.attempt}")[:12]
    first, *rest = chat["messages"]
    said = first.get("content") or ""
    marked = f"[{mark}] {said}" if isinstance(said, str) else [{"type": "text", "text": f"[{mark}]"}, *said]
    return Prompt(
        id=f"captured {chats_digest([chat])[:12]}.{place.stream}",
        content={
            **{name: value for name, value in chat.items() if name not in UNFORCED},
            **_marked_tools(chat, mark),
            "messages": [{**first, "content": marked}, *rest],
        },
    )


def _marked_tools(chat: Chat, mark: str) -> dict[str, Any]:
    """Return the chat's tools with the mark before the first one's description; empty without tools to mark."""
    tools = chat.get("tools")
    if not isinstance(tools, list) or not tools or not isinstance(tools[0], dict):
        return {}
    first, told = tools[0], tools[0].get("function")
    if not isinstance(told, dict):
        return {}
    description = f"[{mark}] {told.get('description') or ''}".rstrip()
    head = {
        "name": told.get("name"),
        "description": description,
    }  # before its parameters, which templates write as they come
    return {"tools": [{**first, "function": {**head, **told, "description": description}}, *tools[1:]]}


async def cut_prompt(
    prompt: Prompt, content: Callable[[int, str], str], target: int, count: Count, text: str
) -> Prompt:
    """Fill the prompt with `content(pieces, filler)` of exactly `target` tokens, counted as that class of text.

    Takes as many pieces as stay below the target, then filler up to it. Without a fitting filler, stays just below.
    """
    counted = partial(count, text)
    pieces, tokens = await _nearly(content, target, counted)
    fill = ""
    for filler in FILLERS:
        copies, rate = target - tokens, 1.0
        while copies > 0:
            found = await counted(content(pieces, fill + filler * copies))
            if found <= target:
                fill, tokens = fill + filler * copies, found
                break
            rate = max(rate, (found - tokens) / copies)
            copies = min(copies - 1, int((target - tokens) / rate))
    return replace(prompt, content=content(pieces, fill), tokens=tokens)


async def _nearly(content: Callable[[int, str], str], target: int, count: _Count) -> tuple[int, int]:
    """Return (pieces, their tokens), at most the target, and at most CLOSE less if SEARCH counts suffice."""
    low, low_tokens = 0, await count(content(0, ""))
    high, rate = 0, TOKENS_PER_PIECE
    for _ in range(SEARCH):
        lack = target - low_tokens
        if lack <= CLOSE or high == low + 1:
            break
        pieces = low + max(1, int((lack - CLOSE / 2) / rate))
        pieces = min(pieces, high - 1) if high else pieces
        tokens = await count(content(pieces, ""))
        if tokens > low_tokens:
            rate = (tokens - low_tokens) / (pieces - low)
        if tokens <= target:
            low, low_tokens = pieces, tokens
        else:
            high = pieces
    return low, low_tokens


def _source(seed: int, key: CellKey, place: PromptIndex) -> str:
    return f"{seed}|{key.model_dump_json(exclude={'suite'})}|{place.rep}|{place.stream}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
