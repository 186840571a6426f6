"""Offline count: answers count_tokens while the request's engine does not run.

Owns: counting without a lease, on the very bytes that the engine would get. Must not know how tokens are counted.
"""

from __future__ import annotations

from sparkdash.domain.profile import Profile
from sparkdash.gateway.count.counter import not_loaded_error
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.relay.request_context import RequestContext


async def answer_count(context: RequestContext, profile: Profile) -> None:
    """Answer with the request's token count. Raises AdmissionError as `TokenCounter.tokens` does."""
    counter = context.deps.counter
    if counter is None:
        raise not_loaded_error(profile, "there is nothing here that counts them")
    body = context.deps.preparer.prepare(context.body_share.body, context.peeked, context.route, profile).body
    answer = problems.encode_json({"input_tokens": await counter.tokens(profile, body)})
    await context.exchange.answer(200, answer, [(b"content-type", b"application/json")])
