"""The measured engine: who it is, requests in its dialect, its counters, and its token counts."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sparkdash.bench.measure import stream_answer
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.plan import texts
from sparkdash.bench.plan.suites import CLASSES
from sparkdash.domain.profile import EngineKind
from sparkdash.engines import model_list
from sparkdash.engines.model_list import token_count
from sparkdash.engines.registry import adapter
from sparkdash.errors import SparkdashError, UpstreamError
from sparkdash.telemetry import exposition
from sparkdash.telemetry.reading import Reading, reading_of, sample_names

PROBE_TOKENS = 24
PROBE = "Reply with the single word yes."
"""A request whose answer has more tokens than one word only where its length is forced."""


async def attached_keys(client: BenchClient, model: str, engine_url: str | None) -> EngineKind | None:
    """Return the kind whose request keys an attached server takes: its own by its list of models, else as tried."""
    kind = EngineKind.OPENAI
    if engine_url is not None:
        with suppress(SparkdashError, ValueError, RecursionError):
            cards = json.loads(await client.get("/v1/models", url=engine_url))
            kind = model_list.engine_kind_of(cards) if isinstance(cards, dict) else kind
    return await _taken_keys(client, model) if kind.is_external else kind


async def _taken_keys(client: BenchClient, model: str) -> EngineKind | None:
    """Return VLLM when a server of unknown kind answers a request with vLLM's keys; None when it refuses them."""
    vllm = adapter(EngineKind.VLLM)
    answer = await client.chat(
        {
            "model": model,
            "messages": [{"role": "user", "content": PROBE}],
            "temperature": 0.0,
            **vllm.forced_length(PROBE_TOKENS),
            **vllm.uncached_prompt("probe"),
            **vllm.usage_counts(),
        }
    )
    return None if answer.error or answer.n != PROBE_TOKENS else EngineKind.VLLM


PROBE_WORDS = 400
"""Words of the request that shows how the engine counts; some 500 tokens."""
SHORTEST = "x"
METRICS_S = 5.0
Content = str | Mapping[str, Any]
"""Text of a user's message, or the keys of a whole chat."""


@dataclass(slots=True)
class MeasuredEngine:
    """Engine under measurement. `client` sends its requests; `engine_url` is the engine itself (None: unreachable)."""

    client: BenchClient
    kind: EngineKind
    model: str
    engine_url: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the profile adds to every request. The bench's own fields override them."""
    keys: EngineKind | None = None
    """Kind whose request keys and counting routes a server of unknown kind takes; None: those of `kind`."""
    _tokenizes: bool = True
    """Whether /tokenize has not been refused yet."""

    @property
    def speaks(self) -> EngineKind:
        return self.keys or self.kind

    def body(self, content: Content, tokens: int, *, salt: str, forced: bool = True) -> dict[str, Any]:
        """Build a greedy chat. `tokens` is exact where `forced`, otherwise the maximum."""
        said = {"messages": [{"role": "user", "content": content}]} if isinstance(content, str) else content
        length = adapter(self.speaks).forced_length(tokens) if forced else {"max_tokens": tokens}
        return {
            **self.defaults,
            **said,
            "model": self.model,
            "temperature": 0.0,
            "seed": 0,
            **length,
            **adapter(self.speaks).uncached_prompt(salt),
            **adapter(self.speaks).usage_counts(),
        }

    async def ask_all(
        self, contents: Sequence[Content], tokens: int, *, salt: str, forced: bool = True
    ) -> list[StreamedAnswer]:
        """Send several requests concurrently. The tokens of their first chunks are counted after the last has ended."""
        answers = await self.client.chats([self.body(one, tokens, salt=salt, forced=forced) for one in contents])
        return [one if stream_answer.is_known(one) else await self._counted_first(one) for one in answers]

    async def _counted_first(self, answer: StreamedAnswer) -> StreamedAnswer:
        """Count the tokens of the answer's first moment by /tokenize, else estimate them."""
        how = adapter(self.speaks).tokenize_request(self.model, answer.first_text) if self._tokenizes else None
        if how is None or not answer.first_text:
            return stream_answer.estimated(answer)
        try:
            told = await self.client.post(how.path, how.body)
        except UpstreamError:
            self._tokenizes = False
            return stream_answer.estimated(answer)
        tokens = token_count(told) if isinstance(told, dict) else None
        return stream_answer.estimated(answer) if tokens is None else stream_answer.counted(answer, tokens)

    async def _page(self) -> str:
        """Return the engine's page of metrics; empty when it gives none."""
        path = adapter(self.kind).metrics.path
        if self.engine_url is None or path is None:
            return ""
        try:
            page = await self.client.get(path, url=self.engine_url, timeout_s=METRICS_S)
        except UpstreamError:
            return ""
        return page.decode("utf-8", "replace")

    async def _document(self, path: str) -> Mapping[str, Any]:
        """Return the JSON object that the engine has at this path; empty when it gives none."""
        if self.engine_url is None:
            return {}
        try:
            found = json.loads(await self.client.get(path, url=self.engine_url, timeout_s=METRICS_S))
        except (UpstreamError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    async def counters(self) -> Reading | None:
        names = adapter(self.kind).metrics
        scrape = exposition.parse_exposition(await self._page(), sample_names(names))
        return reading_of(time.monotonic(), scrape, names) if scrape.samples else None

    async def version(self) -> str | None:
        path = adapter(self.kind).probes.version
        found = await self._document(path) if path else {}
        return str(found["version"]) if "version" in found else None

    async def kv_tokens(self) -> int | None:
        reading = await self.counters()
        capacity = reading.gauges.kv_capacity if reading else None
        return None if capacity is None else int(capacity)

    async def context_limit(self) -> int | None:
        """Return the longest request that the engine's list of models names for the measured model."""
        listed = (await self._document("/v1/models")).get("data")
        models = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        limits = [one.get("max_model_len") for one in models if one.get("id") == self.model or len(models) == 1]
        return next((limit for limit in limits if isinstance(limit, int)), None)

    async def kv_dtype(self) -> str | None:
        """Return the KV cache's type that the engine reports; None for `auto`."""
        names = adapter(self.kind).metrics.kv_info
        if not names:
            return None
        labels = exposition.parse_exposition(await self._page(), frozenset(names)).info(names[0])
        told = labels[0].get("cache_dtype") if labels else None
        return None if told == "auto" else told

    async def tokenizer(self) -> str | None:
        """Return the SHA-256 of the token ids of a fixed text; None when the engine gives no ids."""
        pieces = texts.text_pieces("chat", "tokenizer")
        how = adapter(self.speaks).tokenize_request(self.model, "".join(next(pieces) for _ in range(PROBE_WORDS)))
        if how is None:
            return None
        try:
            answer = await self.client.post(how.path, how.body)
        except UpstreamError:
            return None
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest() if ids else None

    async def counter(self) -> "PromptTokenCounter":
        """Learn from short requests how this engine counts: one where it has /tokenize, else a few of each text class.
        Raises UpstreamError: it refuses a request, or gives no `usage`.
        """
        text = _sample("prose", PROBE_WORDS)
        told = await self._counted(text)
        counter = PromptTokenCounter(self, template=await self._counted(SHORTEST))
        try:
            counted = await counter.tokens(text)
        except UpstreamError:
            counted = None
        if counted is not None:
            counter.offset, counter.exact = told - counted, True
            return counter
        short = _sample("prose", PROBE_WORDS // 20)
        slope = (told - await self._counted(short)) / (len(text) - len(short))
        counter.offset = max(0, round(told - slope * len(text)))
        for kind in CLASSES:
            text = _sample(kind, PROBE_WORDS)
            counter.per_character[kind] = (await self._counted(text) - counter.offset) / len(text)
        return counter

    async def _counted(self, text: str) -> int:
        """Return the prompt tokens that the engine's `usage` reports."""
        (answer,) = await self.ask_all([text], 1, salt="probe")
        if answer.error or answer.prompt_tokens is None:
            why = answer.error or "it reports no usage, so its tokens cannot be counted"
            raise UpstreamError(f"{self.model} cannot be measured: {why.rstrip('.')}.", code="not_measurable")
        return answer.prompt_tokens


@dataclass(slots=True)
class PromptTokenCounter:
    """Counts a prompt's tokens by the engine's /tokenize (`exact`), else by its rate per character."""

    measured: MeasuredEngine
    template: int = 0
    """Tokens of the shortest prompt: the chat template's own, which a prefix cache knows as far as they begin it."""
    offset: int = 0
    """Tokens beyond /tokenize, or beyond the text: the chat template, or the profile's additions."""
    exact: bool = False
    per_character: dict[str, float] = field(default_factory=dict)
    """Tokens per character by class of text; empty where counts are exact."""

    async def __call__(self, kind: str, content: str) -> int:
        """Return the tokens of the whole prompt, whose text is of that class.

        Raises:
            UpstreamError: the engine stopped answering, or telling.
        """
        if not self.exact:
            return self.offset + round(len(content) * self.per_character[kind])
        if (counted := await self.tokens(content)) is None:
            raise UpstreamError(f"{self.measured.model} no longer reports its tokens.", code="not_measurable")
        return counted + self.offset

    async def tokens(self, content: str) -> int | None:
        """Return the count of /tokenize; None when there is no such route."""
        how = adapter(self.measured.speaks).count_request(self.measured.model, content)
        if how is None:
            return None
        answer = await self.measured.client.post(how.path, how.body)
        return token_count(answer) if isinstance(answer, dict) else None


def _sample(kind: str, words: int) -> str:
    return "".join(islice(texts.text_pieces(kind, "probe"), words)).strip()
