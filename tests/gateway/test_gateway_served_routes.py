"""Routes of described servers: what is refused, what a chat answers instead, and the server's own paths."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.profile import Profile
from sparkdash.domain.task import ROUTE_PATHS
from sparkdash.errors import AdmissionError
from sparkdash.gateway.protocol.route import find_route
from sparkdash.gateway.relay.destinations import refuse_unserved, server_path


def profile(engine: str = "generic", **server: Any) -> Profile:
    """Return a profile with this server."""
    return Profile.model_validate({"name": "p", "engine": engine, "server": {"port": 1, **server}})


def refuses(made: Profile, path: str) -> bool:
    """Whether a request for the path is refused."""
    route = find_route(path)
    assert route is not None
    try:
        refuse_unserved(made, route)
    except AdmissionError as error:
        return (error.code, error.status) == ("route_not_served", 404)
    return False


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/anything", "/props"])
def test_a_chat_server_takes_chats_what_can_be_translated_and_paths_of_its_own(path: str) -> None:
    """Paths that are no route of OpenAI's are left to the server."""
    assert not refuses(profile(), path)


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/rerank", "/v1/images/edits", "/v1/audio/speech", "/v1/completions"]
)
def test_a_chat_server_takes_nothing_else(path: str) -> None:
    """Spellings without /v1 are the same route."""
    assert refuses(profile(), path)


def test_messages_are_not_translated_for_a_server_without_chat() -> None:
    """There is nothing to translate them into."""
    assert refuses(profile(routes=["embeddings"]), "/v1/messages")


@pytest.mark.parametrize("path", ROUTE_PATHS.values())
def test_other_engines_are_never_refused_here(path: str) -> None:
    """They tell by themselves what they serve."""
    assert not refuses(profile("vllm"), path)


def test_the_server_s_own_path_stands_for_every_spelling() -> None:
    """A path that means no route stays as it is."""
    made = profile(routes=["rerank"], paths={"rerank": "/rank"})
    assert [server_path(made, path) for path in ("/v1/rerank", "/rerank", "/v1/other")] == [
        "/rank",
        "/rank",
        "/v1/other",
    ]
