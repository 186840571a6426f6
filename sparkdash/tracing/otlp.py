"""OtlpWriter: spans to a collector over OTLP and HTTP.

Owns: the SDK's set-up. Address, headers, timeouts and resource come from OpenTelemetry's own variables. Loads the SDK
(180 ms, 22 MB); sending happens in a thread of the SDK.
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from sparkdash.tracing.span_plan import PlannedSpan

NS = 1_000_000_000


class OtlpWriter:
    """Writes planned spans with the SDK's batch processor. `version` is sparkdash's."""

    def __init__(self, version: str) -> None:
        # our name is the weaker one: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
        own = Resource({"service.name": "sparkdash", "service.version": version})
        told = Resource.create()
        told = Resource({key: value for key, value in told.attributes.items() if not _is_default(key, value)})
        self._provider = TracerProvider(resource=own.merge(told), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sparkdash", version)

    def write(self, span: PlannedSpan) -> None:
        """Queue a span with its children."""
        self._write(span, None)

    def close(self) -> None:
        """Send what is queued, and end the SDK's thread."""
        self._provider.shutdown()

    def _write(self, planned: PlannedSpan, parent: object) -> None:
        begun = self._tracer.start_span(
            planned.name,
            context=parent,  # type: ignore[arg-type]
            kind=SpanKind.SERVER if parent is None else SpanKind.INTERNAL,
            attributes=dict(planned.attributes),
            start_time=int(planned.start * NS),
        )
        if planned.error is not None:
            begun.set_status(Status(StatusCode.ERROR, planned.error))
        for child in planned.children:
            self._write(child, set_span_in_context(begun))
        begun.end(int(planned.end * NS))


def _is_default(key: str, value: object) -> bool:
    return key == "service.name" and str(value).startswith("unknown_service")
