"""GET /metrics, the page that Prometheus reads.

Must not know the metrics. Who may read it stands in `admission/rights.py`.
"""

from __future__ import annotations

from sparkdash.gateway.admission.rights import READ
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.problems import status_error


async def serve_metrics(deps: Deps, exchange: Exchange) -> None:
    """Answer in the text format or in OpenMetrics, as the Accept header asks."""
    if exchange.method not in READ:
        await exchange.refuse_method("/metrics", READ)
    elif deps.metrics is None:
        await exchange.refuse(status_error(404, "There are no metrics here"))
    else:
        body, content_type = await deps.metrics(exchange.head.headers.get(b"accept") or "")
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-store")]
        await exchange.answer(200, body, headers)
