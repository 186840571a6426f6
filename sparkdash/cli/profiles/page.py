"""Text of `profiles show`. Pure."""

import json
from collections.abc import Iterator
from textwrap import wrap

from sparkdash.cli.profiles.images import ProfileImage, image_words
from sparkdash.domain.memory import Need
from sparkdash.domain.profile import Profile, Published, ServerSpec
from sparkdash.domain.request import ROUTE_PATHS
from sparkdash.engines.generic.known_servers import described_server, known_server
from sparkdash.engines.registry import adapter_of
from sparkdash.units import DASH, gib, number, percent, tokens

LABEL = 16
TERM = 13
SIZE = 10

FIGURES = {
    "decode_tok_s": ("decode", "generated tokens / time after the first one"),
    "prefill_tok_s": ("prefill", "prompt tokens / time until the first generated one"),
    "e2e_tok_s": ("e2e", "generated tokens / whole time of the request, prefill included"),
    "aggregate_tok_s": ("aggregate", "generated tokens of all requests at once / time"),
    "tok_s": ("tok/s", "the source does not say what was measured"),
    "kv_tokens": ("KV tokens", "tokens that the KV cache holds"),
    "prefix_hit_rate": ("prefix hits", "tokens found in the prefix cache / tokens looked up"),
    "math_score": ("math", "problems solved / problems given"),
    "start_s": ("start s", "seconds from the start to the first answer"),
    "link_gbit_s": ("link Gb/s", "bandwidth between two boxes"),
    "copy_mb_s": ("copy MB/s", "rate of copying weights to the other box"),
}
"""Figures of Published: column title and definition; rates are per second."""
RATES = ("decode_tok_s", "prefill_tok_s", "e2e_tok_s", "aggregate_tok_s", "tok_s")


def profile_lines(
    profile: Profile, need: Need | None, columns: int, image: ProfileImage | None = None
) -> Iterator[str]:
    yield profile.name
    if profile.about:
        yield from wrap_beside_label("  ", profile.about, columns)
    for label, text in (*_facts(profile), *_image_facts(profile, image)):
        yield from wrap_beside_label(f"  {label:<{LABEL}}", text, columns)
    if need is not None:
        yield from need_lines(need, columns)
    yield from (f"  arg {key} = {json.dumps(value)}" for key, value in profile.args.items())
    yield from (f"  env {key} = {value}" for key, value in profile.env.items())
    yield from (f"  env {name} from the daemon's environment" for name in profile.env_from)
    if profile.published:
        yield ""
        yield from published_lines(profile.published, columns)


def need_lines(need: Need, columns: int) -> Iterator[str]:
    yield f"  {'need':<{LABEL}}{gib(need.total_bytes)}, {need.basis.value}"
    for term in need.terms:
        yield from wrap_beside_label(f"    {term.name:<{TERM}}{gib(term.bytes):>{SIZE}}  ", term.source, columns)
    if need.peak_bytes is not None:
        yield f"    {'peak':<{TERM}}{gib(need.peak_bytes):>{SIZE}}  while it loads"


def published_lines(rows: tuple[Published, ...], columns: int) -> Iterator[str]:
    given = [name for name in FIGURES if any(getattr(row, name) is not None for row in rows)]
    yield "  published"
    for row in rows:
        yield from _block(row, given, columns)
    yield ""
    for name in given:
        yield from wrap_beside_label(f"  {FIGURES[name][0]:<{LABEL}}", FIGURES[name][1], columns)


def _facts(profile: Profile) -> Iterator[tuple[str, str]]:
    dialect = adapter_of(profile)
    yield "engine", f"{profile.engine.value} {profile.engine_version or DASH}"
    yield ("url", profile.url) if profile.url else ("image", profile.image or DASH)
    yield "aliases", ", ".join(profile.serves) or DASH
    yield "context", tokens(dialect.context(profile))
    yield "speculation", dialect.speculation(profile) or DASH
    yield "memory", _memory(profile)
    yield from _server_facts(profile)
    if profile.protocols is not None:
        yield "protocols", ", ".join(profile.protocols)
    if profile.can is not None:
        yield "can", ", ".join(profile.can) or DASH
    if not profile.engine.is_remote:
        yield "on stuck", profile.on_stuck.value
    if profile.fallbacks:
        yield "fallbacks", ", ".join(profile.fallbacks)
    yield "fingerprint", profile.fingerprint
    yield "source", profile.source or DASH
    yield from ((f"model {role}", model.ref) for role, model in profile.models.items())
    if profile.cannot_run:
        yield "cannot run", profile.cannot_run
        yield "nearest", profile.nearest or DASH


def _image_facts(profile: Profile, image: ProfileImage | None) -> Iterator[tuple[str, str]]:
    if image is not None and (words := image_words(profile, image)):
        yield "image is", words
    build = profile.build
    if build is not None and not build.unavailable:
        yield "image is from", f"{build.origin}, as {profile.built_by} says"
    if profile.nearest and not profile.cannot_run:
        yield "nearest", f"{profile.nearest}, which can be pulled"


def _server_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    if profile.engine.is_remote:
        yield "model there", profile.model_id or profile.name
        yield "key", f"in {profile.key_env}" if profile.key_env else DASH
    elif profile.engine.is_external:
        yield "model there", profile.model_id or "as the server lists it"
    elif (server := described_server(profile)) is not None:
        yield from _generic_facts(profile, server)


def _generic_facts(profile: Profile, server: ServerSpec) -> Iterator[tuple[str, str]]:
    known = known_server(profile)
    if known:
        yield "server", f"{known.title}, described after {known.source}; {known.tried}"
    yield "serves", ", ".join(ROUTE_PATHS[route] for route in server.routes)
    yield "model there", profile.model_id or "as the server lists it"


def _memory(profile: Profile) -> str:
    need = profile.memory
    parts = [
        f"{label} {number(size, 1, ' GiB')}"
        for label, size in (("weights", need.weights_gib), ("kv", need.kv_gib), ("overhead", need.overhead_gib))
    ]
    source = f"; {need.source}" if need.source else ""
    return f"{gib(need.total_bytes)} ({', '.join(parts)}{source})"


def _figure(row: Published, name: str) -> str:
    value = getattr(row, name)
    if name in ("prefix_hit_rate", "math_score"):
        return percent(value)
    digits = 0 if name in ("prefill_tok_s", "kv_tokens") else 1
    shown = number(value, digits)
    # a row with a range has one figure
    return shown if value is None or row.upto is None else f"{shown} to {number(row.upto, digits)}"


def _block(row: Published, given: list[str], columns: int) -> Iterator[str]:
    yield from wrap_beside_label("  ", row.workload, columns)
    for name in given:
        if getattr(row, name) is not None:
            unit = " tok/s" if name in RATES and name != "tok_s" else ""
            yield f"    {FIGURES[name][0]:<{TERM}}{_figure(row, name)}{unit}"
    source = f"{row.source} ({row.note})" if row.note else row.source
    yield from wrap_beside_label(f"    {'source':<{TERM}}", source, columns)


def wrap_beside_label(label: str, text: str, columns: int) -> list[str]:
    """Wrap text beside its label, continuation lines indented; a word longer than the line stays whole."""
    room = max(20, columns - len(label))
    rest = [" " * len(label) + line for line in wrap(text, room, break_long_words=False, break_on_hyphens=False)]
    return [label + rest[0][len(label) :], *rest[1:]] if rest else [label.rstrip()]
