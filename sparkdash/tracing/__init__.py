"""Traces of requests for OpenTelemetry, where the owner names a collector.

Owns: when traces are made, and the message where the extra is missing. Must not know how a request is served.
Rule: without OTEL_EXPORTER_OTLP_ENDPOINT nothing of OpenTelemetry is loaded. No span holds a prompt or an answer.
"""

from sparkdash.tracing.request_tracer import RequestTracer, traces_wanted

__all__ = ["RequestTracer", "traces_wanted"]
