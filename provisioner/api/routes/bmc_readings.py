"""Routes of a node's BMCs as they are now: logs, values of metric reports, counters of links.

Nothing is stored. The text is the device's own: printable characters of it are passed on, without
those that look like a secret.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.adapters.redfish import accounts, diagnostics
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.hardware_tree import Reading
from provisioner.adapters.redfish.upkeep.leaks import LinkReading, read_link_counters
from provisioner.api.parts import Ask, Reply, read_bmc
from provisioner.api.problem import refuse_missing
from provisioner.api.route import VIEWERS, Route
from provisioner.model.base import Record
from provisioner.model.times.instant import Instant
from provisioner.planning.lifecycle.power_requests import HOST
from provisioner.planning.watch.log_text import clean_line
from provisioner.telemetry.logs import scrub

TAG = "nodes"
ENTRIES_MAX = 2000


class BmcQuery(Record):
    """The BMC that is read."""

    bmc: str = Field(HOST, max_length=64, description="Name of the BMC in the node.")


class LogQuery(BmcQuery):
    """The BMC that is read, and a bound."""

    limit: int = Field(200, ge=1, le=ENTRIES_MAX, description="Newest entries of each log at most.")


class LinkQuery(BmcQuery):
    """The part whose links are read."""

    part: str = Field(
        "",
        max_length=64,
        description="Id of a GPU or an NVSwitch in the BMC's tree: GPU_SXM_1; "
        "empty: the first that has ports.",
    )


class LinkCount(Record):
    """One counter of one link."""

    port: str = Field(description="Path of the port's metrics.")
    name: str = Field(description="Name that the BMC gives it.")
    count: int = Field(description="The count; it begins at a start of the device.")


class LinkCounts(Record):
    """The counters of the links of one GPU or NVSwitch, as its BMC has them now."""

    node: str
    bmc: str = Field(description="Name of the BMC in the node.")
    part: str = Field(description="Id of the GPU or the NVSwitch.")
    read_at: Instant = Field(description="Time of the reading.")
    counters: tuple[LinkCount, ...] = Field(description="Counters of all of its ports.")
    gaps: tuple[str, ...] = Field(description="Resources that could not be read, with reasons.")


class BmcLog(Record):
    """One log service of a BMC."""

    log: str = Field(description="Path of the log service.")
    name: str = Field(description="Name that the BMC gives it.")
    total: int = Field(description="Entries that were read of it.")


class BmcLogEntry(Record):
    """One entry of a log."""

    log: str = Field(description="Path of the log service.")
    id: str = Field(description="Identifier of the entry within its log.")
    at: str = Field(description="Time by the BMC's own clock, as it is sent; it may be years off.")
    severity: str = Field(description="Severity that the BMC gives; empty: none.")
    message: str = Field(description="Text of the device.")


class BmcLogs(Record):
    """The logs of one BMC, as it has them now."""

    node: str
    bmc: str = Field(description="Name of the BMC in the node.")
    read_at: Instant = Field(description="Time of the reading.")
    logs: tuple[BmcLog, ...] = Field(description="Log services that the BMC shows.")
    entries: tuple[BmcLogEntry, ...] = Field(description="Newest entries of each, oldest first.")
    gaps: tuple[str, ...] = Field(description="Resources that could not be read, with reasons.")


class BmcMetric(Record):
    """One value of a metric report."""

    report: str = Field(description="Path of the report.")
    name: str = Field(description="Property that was measured, as the BMC names it.")
    value: float = Field(description="The value.")


class BmcMetrics(Record):
    """The metric reports of one BMC, made when they were asked for."""

    node: str
    bmc: str = Field(description="Name of the BMC in the node.")
    read_at: Instant = Field(description="Time of the reading.")
    reports: tuple[str, ...] = Field(description="Paths of the reports that the BMC offers.")
    metrics: tuple[BmcMetric, ...] = Field(description="Values in the reports.")
    too_large: tuple[str, ...] = Field(description="Reports that are too large to be read.")


def _clean(text: str) -> str:
    return scrub(clean_line(text))


async def show_logs(ask: Ask) -> Reply:
    """Return the logs of one BMC of a node; they are only read."""
    node = await ask.read_node()
    name = ask.query.bmc
    if not any(b.name == name for b in node.bmcs):
        raise refuse_missing("BMC of this node")

    async def read(client: Redfish) -> Reading:
        return await diagnostics.read_logs(client.service)

    reading = await read_bmc(ask, node, name, read)
    lines = diagnostics.lines_of(reading)
    logs = [(p, b) for p, b in sorted(reading.resources.items()) if "/Entries/" not in p]
    entries: list[diagnostics.LogLine] = []
    for path, _ in logs:
        entries += [line for line in lines if line.log == path][-ask.query.limit :]
    view = BmcLogs(
        node=node.id,
        bmc=name,
        read_at=ask.now,
        logs=tuple(
            BmcLog(
                log=_clean(path),
                name=_clean(str(body.get("Name", ""))[: diagnostics.LINE_MAX]),
                total=sum(line.log == path for line in lines),
            )
            for path, body in logs
        ),
        entries=tuple(
            BmcLogEntry(
                log=_clean(line.log),
                id=_clean(line.id),
                at=_clean(line.at),
                severity=_clean(line.severity),
                message=_clean(line.message),
            )
            for line in entries
        ),
        gaps=tuple(_clean(f"{g.source}: {g.detail}"[:300]) for g in reading.gaps),
    )
    return Reply(view)


async def show_metrics(ask: Ask) -> Reply:
    """Return the metric reports of one BMC of a node; no definition of a report is changed."""
    node = await ask.read_node()
    name = ask.query.bmc
    if not any(b.name == name for b in node.bmcs):
        raise refuse_missing("BMC of this node")

    async def read(client: Redfish) -> list[tuple[str, accounts.Report]]:
        paths = await accounts.list_reports(client.service)
        return [(path, await accounts.read(client.service, path)) for path in paths]

    reports = await read_bmc(ask, node, name, read)
    view = BmcMetrics(
        node=node.id,
        bmc=name,
        read_at=ask.now,
        reports=tuple(_clean(path) for path, _ in reports),
        metrics=tuple(
            BmcMetric(report=_clean(path), name=_clean(metric.name), value=metric.value)
            for path, report in reports
            for metric in report.metrics
        ),
        too_large=tuple(_clean(path) for path, report in reports if report.too_large),
    )
    return Reply(view)


async def show_links(ask: Ask) -> Reply:
    """Return the counters of the NVLinks of a GPU or an NVSwitch; none is reset."""
    node = await ask.read_node()
    name = ask.query.bmc
    if not any(b.name == name for b in node.bmcs):
        raise refuse_missing("BMC of this node")

    async def read(client: Redfish) -> LinkReading:
        return await read_link_counters(client.service, ask.query.part)

    reading = await read_bmc(ask, node, name, read)
    view = LinkCounts(
        node=node.id,
        bmc=name,
        part=_clean(reading.part),
        read_at=ask.now,
        counters=tuple(
            LinkCount(port=_clean(c.port), name=_clean(c.name), count=c.count)
            for c in reading.counters
        ),
        gaps=tuple(_clean(f"{g.source}: {g.detail}"[:300]) for g in reading.gaps),
    )
    return Reply(view)


_REFUSALS = {409: "This process reaches no BMC.", 503: "The BMC does not answer."}
ROUTES = (
    Route(
        "GET",
        "/nodes/{node}/logs",
        "show_bmc_logs",
        TAG,
        "Show the logs that a BMC of a node has now: events, SEL, journal.",
        VIEWERS,
        show_logs,
        {200: BmcLogs},
        query=LogQuery,
        heavy=True,
        refusals=_REFUSALS,
    ),
    Route(
        "GET",
        "/nodes/{node}/metrics",
        "show_bmc_metrics",
        TAG,
        "Show the values of the metric reports that a BMC of a node makes now.",
        VIEWERS,
        show_metrics,
        {200: BmcMetrics},
        query=BmcQuery,
        heavy=True,
        refusals=_REFUSALS,
    ),
    Route(
        "GET",
        "/nodes/{node}/links",
        "show_links",
        TAG,
        "Show the counters of the NVLinks of a GPU or an NVSwitch, as a BMC has them now.",
        VIEWERS,
        show_links,
        {200: LinkCounts},
        query=LinkQuery,
        heavy=True,
        refusals=_REFUSALS,
    ),
)
