"""The animals that live in the answers rather than in the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sparkdash.domain.profile import Profile
from sparkdash.errors import ProfileError
from sparkdash.sim.faults import behaviour
from sparkdash.sim.process import serving

MakeProfile = Callable[..., Profile]


async def answered(url: str, **body: Any) -> dict[str, Any]:
    """A whole chat answer."""
    async with httpx.AsyncClient(timeout=60, verify=False) as http:
        reply = await http.post(
            f"{url}/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], **body}
        )
    return dict(reply.json())


async def test_lies_about_health(make_profile: MakeProfile) -> None:
    """Health and models say yes; the answer is empty, streamed too, and no token is counted."""
    async with (
        serving(make_profile(fault="lies-about-health")) as (app, url),
        httpx.AsyncClient(verify=False, timeout=60) as http,
    ):
        assert (await http.get(f"{url}/health")).status_code == 200
        answer = await answered(url)
        assert (answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]) == ("", 0)
        streamed = await http.post(f"{url}/v1/chat/completions", json={"messages": [{"role": "user"}], "stream": True})
        assert "[DONE]" in streamed.text
        assert app.engine.counters.generated == 0


async def test_bad_metrics(make_profile: MakeProfile, read_metrics: Any) -> None:
    """The page is 200 and nonsense; the parser makes of it what it can and the engine answers as ever."""
    async with serving(make_profile(fault="bad-metrics", time_scale=100)) as (_, url):
        seen = await read_metrics(url)
        assert seen.total("vllm:generation_tokens_total") is None
        assert (await answered(url, max_tokens=5))["usage"]["completion_tokens"] == 5


async def test_slow(make_profile: MakeProfile, virtual_clock: Any) -> None:
    """It takes ten times as long as its profile says."""
    async with serving(make_profile(fault="slow"), clock=virtual_clock) as (app, url):
        await answered(url, max_tokens=41)
        assert app.engine.counters.decode.total == pytest.approx(10.0, rel=0.01), "40 tokens at a tenth of 40 tok/s"


def test_an_unknown_animal_is_refused_with_the_known_ones() -> None:
    """A fault that nobody knows is the profile author's mistake, with the names to choose from."""
    with pytest.raises(ProfileError) as caught:
        behaviour("purple")
    assert "dies-loading" in caught.value.text()
