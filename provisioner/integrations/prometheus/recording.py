"""Metrics of events in this process: Redfish exchanges, steps, plans. Implements `ports.Telemetry`.

Every label is from a closed list (vendors, component kinds, reasons), never a node, an address or a
path: 65,536 nodes must not make 65,536 time series.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram

from provisioner import quirks
from provisioner.adapters.redfish.messages import read_document
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan, Step
from provisioner.ports import Call, Malformed, PortError, Reply, Upload
from provisioner.ports.telemetry import name_component

VENDORS_MAX = 262_144  # BMCs with a known vendor: a site of 65,536 nodes with three each
ROOT_MAX_BYTES = 256 * 1024  # of a service root that is read for its vendor
_ROOTS = ("/redfish/v1", "/redfish/v1/")
UNKNOWN = "unknown"
# seconds; a BMC answers in 10 ms to 10 s, and an upload lasts minutes
_REQUEST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
# seconds; from a service's restart to a BFB with its reboots
_STEP_BUCKETS = (1, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
_PLAN_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


def name_outcome(plan: Plan) -> str:
    if plan.blockers:
        return "blocked"
    if plan.in_flight:
        return "in_flight"
    return "steps" if plan.steps else "done"


class Recorder:
    """Counts into `registry`. `clock` returns seconds and measures the durations of steps."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._vendors: dict[str, str] = {}
        self._request_s = Histogram(
            "provisioner_redfish_request_seconds",
            "Redfish exchanges: from the first byte sent to the last one read.",
            ("vendor", "kind"),
            registry=registry,
            buckets=_REQUEST_BUCKETS,
        )
        self._requests = Counter(
            "provisioner_redfish_requests",
            "Redfish exchanges by how they ended: a class of statuses, or why there was no answer.",
            ("vendor", "kind", "outcome"),
            registry=registry,
        )
        self._step_s = Histogram(
            "provisioner_step_seconds",
            "Steps of plans, from their check to their proof.",
            ("component", "outcome"),
            registry=registry,
            buckets=_STEP_BUCKETS,
        )
        self._estimated_s = Counter(
            "provisioner_step_estimated_seconds",
            "What plans had estimated for the steps that went well.",
            ("component",),
            registry=registry,
        )
        self._plan_s = Histogram(
            "provisioner_plan_seconds",
            "Time that plans took to be made.",
            ("outcome",),
            registry=registry,
            buckets=_PLAN_BUCKETS,
        )

    @contextmanager
    def step(self, operation: str, node: str, step: Step) -> Iterator[list[Blocker]]:
        """As `ports.Telemetry`. A step that a takeover or a bug ends counts as `cut_off`."""
        began = self._clock()
        problems = list[Blocker]()
        outcome = "cut_off"
        component = name_component(step)
        try:
            yield problems
            outcome = problems[0].reason.value if problems else "done"
        finally:
            self._step_s.labels(component, outcome).observe(max(0.0, self._clock() - began))
            if outcome == "done":
                self._estimated_s.labels(component).inc(max(0, step.duration_s))

    @contextmanager
    def plan(self) -> Iterator[list[Plan]]:
        """As `ports.Telemetry`."""
        began = time.perf_counter()
        made = list[Plan]()
        yield made
        if made:
            self._plan_s.labels(name_outcome(made[0])).observe(time.perf_counter() - began)

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        """As `ports.Telemetry`."""
        kind = classify_call(call)
        if isinstance(reply, Reply):
            outcome = f"{reply.status // 100}xx"
            if call.path in _ROOTS and reply.status == 200:
                self._read_vendor(url, reply)
        else:
            outcome = reply.reason.value
        vendor = self._vendors.get(url, UNKNOWN)
        self._request_s.labels(vendor, kind).observe(seconds)
        self._requests.labels(vendor, kind, outcome).inc()

    def _read_vendor(self, url: str, reply: Reply) -> None:
        if url in self._vendors and self._vendors[url] != UNKNOWN:
            return
        if len(reply.body) > ROOT_MAX_BYTES or len(self._vendors) >= VENDORS_MAX:
            return
        try:
            root = read_document(reply)
        except Malformed:
            return
        if isinstance(root, dict):
            self._vendors[url] = quirks.identify(root).name


def classify_call(call: Call) -> str:
    """Return the class of an exchange: classes take milliseconds, seconds or minutes."""
    if isinstance(call.body, Upload):
        return "upload"
    return "read" if call.method in ("GET", "HEAD") else "write"
