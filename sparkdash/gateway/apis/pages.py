"""The page for browsers, and the page that Prometheus reads."""

from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

from sparkdash.gateway.admission.access import READ
from sparkdash.gateway.admission.guard import NO_READERS
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange, ParsedHead
from sparkdash.gateway.protocol.problems import status_error

ROOT = "/"
PAGE = "/ui"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_FOLDER = files("sparkdash.gateway") / "page"
_NAMES = [each.name for each in _FOLDER.iterdir() if each.name.rpartition(".")[2] in _TYPES]
FILES = {PAGE if name == "index.html" else f"{PAGE}/{name}": name for name in _NAMES}
"""Files of the page by their path."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDED = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"Accept"),
]


def wants_page(head: ParsedHead) -> bool:
    """Whether a file of the page is asked for; at the root only by a browser, as programs get JSON there."""
    if head.path == ROOT:
        return head.method in READ and "text/html" in (head.headers.get(b"accept") or "").lower()
    return head.path.rstrip("/") in FILES


async def serve_page(_deps: Deps, exchange: Exchange) -> None:
    """Answer with the file, or 304 for a browser that has it."""
    head = exchange.head
    if exchange.method not in READ:
        await exchange.refuse_method(head.path, READ)
        return
    name = FILES[PAGE if head.path == ROOT else head.path.rstrip("/")]
    body, tag = _read(name)
    headers = [(b"etag", tag), *_GUARDED]
    if (head.headers.get(b"if-none-match") or "").encode() == tag:
        await exchange.answer(304, b"", headers)
        return
    await exchange.answer(200, body, [(b"content-type", _TYPES[name.rpartition(".")[2]]), *headers])


@lru_cache(maxsize=len(FILES))
def _read(name: str) -> tuple[bytes, bytes]:
    """Read a file of the page; return it with its entity tag."""
    body = (_FOLDER / name).read_bytes()
    return body, b'"%b"' % sha256(body).hexdigest()[:16].encode()


async def serve_metrics(deps: Deps, exchange: Exchange) -> None:
    """Answer in the text format or in OpenMetrics, as the Accept header asks."""
    exchange.set_extra_headers(NO_READERS)
    if exchange.method not in READ:
        await exchange.refuse_method("/metrics", READ)
    elif deps.metrics is None:
        await exchange.refuse(status_error(404, "There are no metrics here"))
    else:
        body, content_type = await deps.metrics(exchange.head.headers.get(b"accept") or "")
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-store")]
        await exchange.answer(200, body, headers)
