"""OpenTelemetry traces for a site with a collector: one trace per operation, one span per step.

Redfish exchanges within a step are spans below it. The packages are an extra (`traces`) and are
imported here only when an endpoint is set: a daemon without traces has no cost.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from provisioner.daemon.telemetry import read_headers, read_version
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan, Step
from provisioner.ports import Call, PortError, Reply
from provisioner.ports.telemetry import name_component
from provisioner.runtime.log_context import get_log_context
from provisioner.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.util.types import AttributeValue

EXPORT_LIMIT_S = 10.0  # for one batch; if the collector is away, only its spans are lost
NS = 1_000_000_000


class TraceTelemetry:
    """`ports.Telemetry` as spans. `close` sends the remaining spans."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._provider = provider
        self._tracer = provider.get_tracer("provisioner")

    @contextmanager
    def step(self, operation: str, node: str, step: Step) -> Iterator[list[Blocker]]:
        """As `ports.Telemetry`: a span that is current during the step."""
        attributes: dict[str, AttributeValue] = {
            "provisioner.node": node,
            "provisioner.operation": operation,
            "provisioner.component": name_component(step),
            "provisioner.slots": step.slots,
            "provisioner.from": step.from_version,
            "provisioner.to": step.to_version,
            "provisioner.method": step.method,
            "provisioner.estimate_s": step.duration_s,
        }
        problems: list[Blocker] = []
        with self._tracer.start_as_current_span(step.title, attributes=attributes) as span:
            yield problems
            if problems:
                first = problems[0]
                span.set_attribute("provisioner.reason", first.reason.value)
                span.set_status(self._trace.StatusCode.ERROR, str(first)[:300])

    @contextmanager
    def plan(self) -> Iterator[list[Plan]]:
        """As `ports.Telemetry`: plans are metrics only."""
        yield []

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        """As `ports.Telemetry`: a span below the step in progress; nothing outside of a step."""
        if not self._trace.get_current_span().is_recording():
            return
        end = time.time_ns()
        span = self._tracer.start_span(
            f"Redfish {call.method}",
            kind=self._trace.SpanKind.CLIENT,
            start_time=end - int(seconds * NS),
            attributes={
                "http.request.method": call.method,
                "url.full": url + call.path.partition("?")[0],
            },
        )
        if isinstance(reply, Reply):
            span.set_attribute("http.response.status_code", reply.status)
        else:
            span.set_status(self._trace.StatusCode.ERROR, reply.reason.value)
        span.end(end)

    def close(self) -> None:
        """Send the remaining spans, for at most EXPORT_LIMIT_S. Blocks."""
        self._provider.force_flush(int(EXPORT_LIMIT_S * 1000))
        self._provider.shutdown()


@asynccontextmanager
async def open_telemetry(settings: Settings) -> AsyncIterator[TraceTelemetry]:
    """Yield the traces that the settings ask for; waiting spans are sent at the end.

    Raises InputError.
    """
    headers = read_headers("trace_headers_file", settings.trace_headers_file)
    traces = _open_traces(settings.trace_endpoint, headers, read_version())
    try:
        yield traces
    finally:
        await asyncio.to_thread(traces.close)


def _open_traces(endpoint: str, headers: Mapping[str, str], version: str) -> TraceTelemetry:
    """Return traces to an OTLP/HTTP collector. Raises InputError if the extra is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        problem = "traces need packages that are not installed"
        remedy = "Run: pip install 'gpu-provisioner[traces]'; or take the setting out."
        raise InputError("trace_endpoint", endpoint, problem, remedy) from None
    exporter = OTLPSpanExporter(endpoint, headers=dict(headers), timeout=EXPORT_LIMIT_S)
    return TraceTelemetry(build_provider(exporter, version))


def build_provider(exporter: SpanExporter, version: str) -> TracerProvider:
    """Return a provider that exports in batches from its own thread, so it delays nothing."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class ByOperation(RandomIdGenerator):
        """Gives the steps of one operation the same trace, also after a restart."""

        def generate_trace_id(self) -> int:
            operation = get_log_context().get("operation", "")
            if not operation:
                return super().generate_trace_id()
            return int.from_bytes(hashlib.sha256(operation.encode()).digest()[:16], "big")

    resource = Resource.create({"service.name": "provisioner", "service.version": version})
    provider = TracerProvider(resource=resource, id_generator=ByOperation())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
