"""What engines and services say, however oddly: words for people, and never a key."""

from __future__ import annotations

import pytest

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.gateway.apis.ollama_wire import AnswerSummary
from sparkdash.gateway.relay import destinations
from sparkdash.upstream import engine_error_text
from sparkdash.upstream.engine_response import ERROR_TEXT_LIMIT

KEY = "sk-far-0123456789abcdef"


def test_a_body_too_deep_to_read_is_told_as_it_is() -> None:
    """Not as an error of ours."""
    assert engine_error_text(b"[" * 100_000) == "[" * ERROR_TEXT_LIMIT


@pytest.mark.parametrize("before", [0, ERROR_TEXT_LIMIT - 10], ids=["whole", "cut in the middle"])
def test_a_key_that_a_service_repeats_is_masked(before: int) -> None:
    """Also where the words are shortened."""
    profile = Profile(name="cloud", engine=EngineKind.REMOTE, url="https://far.example/v1", model_id="m", key_env="FAR")
    told = destinations.remote_refusal(
        profile, 401, b"x" * before + KEY.encode(), {"Authorization": f"Bearer {KEY}"}, None
    )
    assert KEY[:6] not in told.text()
    assert "***" in told.text()


def test_a_choice_that_is_none_says_nothing() -> None:
    """The rest of the stream counts."""
    heard = AnswerSummary()
    assert list(heard.take({"choices": [None]})) == []
    assert list(heard.take({"choices": [{"delta": {"content": "a"}}]})) == [{"content": "a"}]
