"""Asleep: what a call in the background is answered while the engine that it is for does not run.

Owns: that it is counted without a lease, of the very bytes that the engine would get. Must not know how tokens are counted.
"""

from __future__ import annotations

from sparkdash.domain.profile import Profile
from sparkdash.gateway.count.counter import not_loaded
from sparkdash.gateway.protocol import prepare, problems
from sparkdash.gateway.relay.request_context import Want


async def answer(want: Want, profile: Profile) -> None:
    """The request's tokens. Raises AdmissionError: as `Counter.tokens` does."""
    counter = want.deps.counter
    if counter is None:
        raise not_loaded(profile, "there is nothing here that counts them")
    body = prepare.prepare(want.place.body, want.peeked, want.route, profile).body
    told = problems.encode({"input_tokens": await counter.tokens(profile, body)})
    await want.exchange.answer(200, told, [(b"content-type", b"application/json")])
