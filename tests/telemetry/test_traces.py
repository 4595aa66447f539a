"""Traces: one for an operation, a span for a step, sent to a collector over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from measured_site import BLOCKER, StillClock, step
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from provisioner.daemon.telemetry import open_telemetry
from provisioner.integrations.traces.tracing import TraceTelemetry, build_provider
from provisioner.model.input_error import InputError
from provisioner.ports import Call, Reply, Unreachable
from provisioner.runtime.log_context import set_log_context
from provisioner.settings import Settings

Received = list[tuple[dict[str, str], ExportTraceServiceRequest]]


@pytest.fixture
def exported() -> InMemorySpanExporter:
    """What two steps of one operation, and one of another, leave behind."""
    exporter = InMemorySpanExporter()
    traces = TraceTelemetry(build_provider(exporter, "1"))
    with set_log_context(operation="n1#1"):
        with traces.step("n1#1", "n1", step()):
            reply = Reply(200, {}, b"")
            traces.request("https://10.0.0.1", Call("GET", "/redfish/v1?x=1"), 0.5, reply)
        with traces.step("n1#1", "n1", step()) as problems:
            problems.append(BLOCKER)
            silent = Unreachable("silent", maybe_executed=False)
            traces.request("https://10.0.0.1", Call("GET", "/redfish/v1"), 0.5, silent)
    with set_log_context(operation="n2#1"), traces.step("n2#1", "n2", step()):
        pass
    traces.request("https://10.0.0.1", Call("GET", "/redfish/v1"), 0.5, reply)  # of no step
    traces.close()
    return exporter


def test_steps_of_one_operation_share_a_trace(exported: InMemorySpanExporter):
    steps = [s for s in exported.get_finished_spans() if s.name.startswith("host.bmc")]
    by_operation = {(s.attributes["provisioner.operation"], s.context.trace_id) for s in steps}

    assert len(steps) == 3
    assert len(by_operation) == 2
    assert len({trace for _, trace in by_operation}) == 2


def test_a_step_tells_node_component_versions_and_what_stood_in_its_way(
    exported: InMemorySpanExporter,
):
    steps = [s for s in exported.get_finished_spans() if s.name.startswith("host.bmc")]

    told = dict(steps[0].attributes)
    assert (told["provisioner.node"], told["provisioner.to"]) == ("n1", "2")
    assert steps[1].status.status_code is StatusCode.ERROR
    assert steps[1].attributes["provisioner.reason"] == "check_failed"


def test_exchanges_of_a_step_are_below_it_and_tell_no_query(exported: InMemorySpanExporter):
    spans = exported.get_finished_spans()
    exchanges = [s for s in spans if s.name == "Redfish GET"]
    steps = {s.context.span_id for s in spans if s.name.startswith("host.bmc")}

    assert len(exchanges) == 2
    assert {s.parent.span_id for s in exchanges} <= steps
    assert exchanges[0].attributes["url.full"] == "https://10.0.0.1/redfish/v1"
    assert (exchanges[0].end_time - exchanges[0].start_time) // 10**6 == 500


@contextmanager
def collector() -> Iterator[tuple[str, Received]]:
    """An OTLP/HTTP collector that keeps what it is sent."""
    received: Received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = ExportTraceServiceRequest()
            found.ParseFromString(body)
            received.append((dict(self.headers), found))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_collector_gets_them_with_its_own_header(tmp_path: Path):
    headers = tmp_path / "headers"
    headers.write_text("X-Api-Key: 0123456789\n\n")

    async def daemon(endpoint: str) -> None:
        chosen = Settings(trace_endpoint=endpoint, trace_headers_file=str(headers))
        async with open_telemetry(chosen, StillClock()) as measured:
            with measured.telemetry.step("n1#1", "n1", step()):
                pass

    with collector() as (endpoint, received):
        asyncio.run(daemon(endpoint))

    ((told, request),) = received
    assert {k.lower(): v for k, v in told.items()}["x-api-key"] == "0123456789"
    names = [s.name for r in request.resource_spans for i in r.scope_spans for s in i.spans]
    assert names == ["host.bmc 1 → 2"]


def test_headers_that_are_none_are_refused_without_being_told(tmp_path: Path):
    headers = tmp_path / "headers"
    headers.write_text("0123456789-secret\n")

    async def daemon() -> None:
        chosen = Settings(trace_endpoint="http://127.0.0.1:1", trace_headers_file=str(headers))
        async with open_telemetry(chosen, StillClock()):
            pass

    with pytest.raises(InputError, match="line 1 is no header") as refused:
        asyncio.run(daemon())
    assert "secret" not in str(refused.value)


def test_whoever_wants_no_traces_does_not_even_import_them():
    words = (
        "import sys, provisioner.integrations.traces.tracing; "
        "sys.exit(any('opentelemetry' in m for m in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
