"""Reads the metric reports of a BMC: HGX makes them on request only, and does not stream them.

Only existing reports are read; report definitions are never created or changed.
Reports are large (190 KB on a DGX H100, 5.8 MB on a Lenovo SR670): one over the bound is not read.
DSP0268: TelemetryService, MetricReport.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.adapters.redfish.eventing.events import Metric, read_document
from provisioner.adapters.redfish.parsing import link, truth
from provisioner.adapters.redfish.service import Service
from provisioner.ports import Call, Malformed, TooLarge

REPORTS_MAX = 12  # of one BMC; HGX baseboards have some ten definitions, iDRAC offers two dozen
REPORT_MAX_BYTES = 1024 * 1024  # parsed within 15 ms: the event loop waits for so long
READ_S = 60.0  # HGX baseboards put a report together when it is asked for


@dataclass(frozen=True)
class Report:
    """One report as it was read. `too_large`: it was left, and is not worth asking for again."""

    metrics: tuple[Metric, ...] = ()
    too_large: bool = False


async def list_reports(service: Service) -> tuple[str, ...]:
    """Paths of the reports that are there; () where there is no telemetry, or it is disabled.

    Raises `PortError` if the BMC does not answer.
    """
    telemetry = await service.find_part("TelemetryService")
    if not telemetry.data or truth(telemetry.data.get("ServiceEnabled")) is False:
        return ()
    paths = await service.walk().read_links(link(telemetry.data, "MetricReports"))
    return tuple(paths[:REPORTS_MAX])


async def read(service: Service, path: str) -> Report:
    """One report; nothing where it is gone, or cannot be read as one. Raises `PortError`."""
    call = Call("GET", path, timeout_s=READ_S, size_max_bytes=REPORT_MAX_BYTES)
    try:
        reply = await service.transport.request(service.address, call)
        if reply.status != 200:
            return Report()
        if len(reply.body) > REPORT_MAX_BYTES:  # a transport may bound it by something else
            return Report(too_large=True)
        return Report(read_document(reply.json()).metrics)
    except TooLarge:
        return Report(too_large=True)
    except Malformed:
        return Report()
