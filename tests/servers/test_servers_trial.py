"""The smallest piece of work: what is asked of each engine, and which answers prove that it works."""

from __future__ import annotations

import io
import json
import wave
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.domain.profile import Profile, ServerSpec
from sparkdash.domain.request import ServerRoute
from sparkdash.engines.generic.trial import PROVABLE, silence, trial_of
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import UpstreamError
from sparkdash.supervisor.probe import try_engine
from sparkdash.supervisor.tools import Tools
from sparkdash.upstream import SmallResponse

VECTOR = json.dumps({"data": [{"embedding": [0.1]}]}).encode()
RANKS = json.dumps({"results": [{"relevance_score": 0.9}, {"relevance_score": 0.1}]}).encode()


class PostOnly:
    """An engine that answers posts in this order; any chat would be an error."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def post(self, url: str, _body: bytes, *, content_type: str, timeout_s: float) -> SmallResponse:
        self.asked.append(url)
        status, body = self.answers.pop(0)
        return SmallResponse(status, "application/json", body)


async def tried(posts: PostOnly, **values: Any) -> None:
    tools = cast(
        "Tools", SimpleNamespace(adapter=adapter_of, upstream=posts, needs=SimpleNamespace(target=lambda _: None))
    )
    await try_engine(tools, Profile.model_validate({"name": "p", **values}), "http://e", 5.0)


POOLING = {"engine": "vllm", "args": {"runner": "pooling"}}


@pytest.mark.parametrize("answers", [((200, VECTOR),), ((404, b""), (200, RANKS)), ((400, b"{}"), (404, b""))])
async def test_a_pooling_engine_is_proven_by_a_vector_or_a_ranking(answers: tuple[tuple[int, bytes], ...]) -> None:
    """One that makes neither only classifies, and its health path counts."""
    engine = PostOnly(*answers)
    await tried(engine, **POOLING)
    assert not engine.answers


@pytest.mark.parametrize(
    "answer", [(500, b'{"error": "died"}'), (200, b'{"data": [{"embedding": [0, 0]}]}'), (200, b"ok")]
)
async def test_a_pooling_engine_that_answers_nothing_of_use_is_refused(answer: tuple[int, bytes]) -> None:
    """All zeros are what a broken kernel gives."""
    with pytest.raises(UpstreamError, match="the trial of embeddings"):
        await tried(PostOnly(answer), **POOLING)


async def test_a_server_that_its_health_path_alone_proves_is_asked_nothing() -> None:
    """Some servers have no cheap piece of work."""
    engine = PostOnly()
    await tried(engine, engine="generic", model_id="m", server={"port": 1, "ready_by": "health"})
    assert not engine.asked


GOOD: dict[ServerRoute, bytes] = {
    ServerRoute.CHAT: b'{"choices": [{"message": {"content": "one"}}]}',
    ServerRoute.COMPLETIONS: b'{"choices": [{"text": "one"}]}',
    ServerRoute.RESPONSES: b'{"output": [{"type": "message"}]}',
    ServerRoute.MESSAGES: b'{"content": []}',
    ServerRoute.EMBEDDINGS: VECTOR,
    ServerRoute.RERANK: RANKS,
    ServerRoute.SCORE: b'{"data": [{"score": 0.5}]}',
    ServerRoute.TRANSCRIPTIONS: b'{"text": ""}',
    ServerRoute.TRANSLATIONS: b'{"text": ""}',
    ServerRoute.SPEECH: b"RIFF",
    ServerRoute.IMAGES: b'{"data": [{"url": "http://x/1.png"}]}',
}


@pytest.mark.parametrize("route", sorted(PROVABLE))
def test_each_trial_takes_a_good_answer_and_no_other(route: ServerRoute) -> None:
    """An error in a body with status 200 is no proof."""
    trial = trial_of(ServerSpec(routes=(route,)), "m")
    assert trial is not None
    kind = "audio/wav" if route is ServerRoute.SPEECH else "application/json"
    assert trial.fault(kind, GOOD[route]) is None
    assert trial.fault("application/json", b'{"error": {"message": "no"}}') is not None
    assert trial.fault("application/json", b"") is not None


def test_the_keys_of_the_profile_go_into_the_request() -> None:
    trial = trial_of(ServerSpec(routes=(ServerRoute.SPEECH,), ready_with={"voice": "af_bella"}), "m")
    assert trial is not None
    assert json.loads(trial.body)["voice"] == "af_bella"


def test_the_sound_of_the_proof_is_half_a_second_of_silence() -> None:
    """16 kHz, mono, 16 bits: what every recogniser takes."""
    with wave.open(io.BytesIO(silence())) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (16_000, 1, 2)
        assert sound.getnframes() == 8_000
