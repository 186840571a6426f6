"""Asleep: what a call in the background is answered while the engine that it is for does not run.

Owns: that it is counted without a lease, of the very bytes that the engine would get. Must not know how tokens are counted.
"""

from __future__ import annotations

from sparkdash.domain.profile import Profile
from sparkdash.gateway import care, problems
from sparkdash.gateway.count.counter import not_loaded
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.exchange import Exchange
from sparkdash.gateway.peek import Peeked
from sparkdash.gateway.room import Place
from sparkdash.gateway.route import Route


async def answer(deps: Deps, exchange: Exchange, route: Route, asked: Peeked, place: Place, profile: Profile) -> None:
    """The request's tokens. Raises AdmissionError: as `Counter.tokens` does."""
    if deps.counter is None:
        raise not_loaded(profile, "there is nothing here that counts them")
    body = care.prepare(place.body, asked, route, care.Reader(profile)).body
    told = problems.encode({"input_tokens": await deps.counter.tokens(profile, body)})
    await exchange.answer(200, told, [(b"content-type", b"application/json")])
