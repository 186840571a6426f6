"""Traces over HTTP to a stand-in for a collector, decoded as any collector would."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from scraped import ALPHA, NOW, ended, scraped_state, swap

from sparkdash import tracing
from sparkdash.domain.event import Fact, Notice
from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import SwapPhase
from sparkdash.tracing import RequestTracer, traces_wanted


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    """What a collector was sent; OpenTelemetry's own variable names it."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield got
        server.shutdown()
        thread.join()


def publishing(told: list[Fact]) -> Any:
    return told.append


async def test_a_collector_gets_a_span_for_each_request_with_its_parts_below_it(
    collector: list[ExportTraceServiceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_S", 60.0)
    told: list[Fact] = []
    loaded = swap("1", stage_s={SwapPhase.LOAD: 18.0}, ended_at=NOW - 2)
    snapshot = scraped_state().snapshot.replace(swaps=(loaded,))
    async with RequestTracer(lambda: snapshot, publishing(told)) as tracer:
        tracer.record(ended())
        tracer.record(ended(id="r9", state=RequestState.FAILED, error="engine_dead"))
    groups = [group for sent in collector for group in sent.resource_spans]
    resource = {one.key: one.value.string_value for one in groups[0].resource.attributes}
    assert resource["service.name"] == "sparkdash"
    spans = [span for group in groups for scope in group.scope_spans for span in scope.spans]
    roots = [span for span in spans if not span.parent_span_id]
    assert [span.name for span in roots] == [f"chat {ALPHA}"] * 2
    assert [span.status.code for span in roots] == [0, 2]
    first = {span.name: span for span in spans if span.trace_id == roots[0].trace_id}
    assert {name for name in first if first[name].parent_span_id == roots[0].span_id} == {"wait", "prefill", "decode"}
    assert first["swap load"].parent_span_id == first["wait"].span_id
    assert first["prefill"].end_time_unix_nano - first["prefill"].start_time_unix_nano == pytest.approx(5e8, abs=1e6)
    attributes = {one.key: one.value for one in roots[0].attributes}
    assert attributes["gen_ai.usage.output_tokens"].int_value == 50
    assert attributes["gen_ai.provider.name"].string_value == "vllm"
    assert told == []


async def test_a_span_comes_below_the_clients_own_and_not_at_all_where_its_trace_is_not_recorded(
    collector: list[ExportTraceServiceRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_S", 60.0)
    trace, above = "ab" * 16, "cd" * 8
    async with RequestTracer(lambda: scraped_state().snapshot, publishing([])) as tracer:
        tracer.record(ended(traceparent=f"00-{trace}-{above}-01", session="s1"))
        tracer.record(ended(id="r9", traceparent=f"00-{'ef' * 16}-{above}-00"))
    spans = [span for sent in collector for group in sent.resource_spans for s in group.scope_spans for span in s.spans]
    assert {span.trace_id.hex() for span in spans} == {trace}
    (root,) = [span for span in spans if span.parent_span_id.hex() == above]
    assert (root.name, root.kind) == (f"chat {ALPHA}", root.SPAN_KIND_SERVER)
    assert {one.key: one.value.string_value for one in root.attributes}["session.id"] == "s1"


async def test_without_its_extra_the_daemon_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    told: list[Fact] = []
    async with RequestTracer(lambda: scraped_state().snapshot, publishing(told)) as tracer:
        tracer.record(ended())
    assert [notice.code for notice in told if isinstance(notice, Notice)] == ["otel_missing"]
    assert "pip install 'sparkdash[otel]'" in str(told[0])


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
    ids=str,
)
def test_only_a_named_collector_makes_it_work(
    variables: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert traces_wanted() is wanted
