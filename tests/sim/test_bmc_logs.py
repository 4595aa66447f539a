"""Logs of a BMC as people read them: every entry in order, the journal beside the event log.

source: Managers/HGX_BMC_0/LogServices/Journal in the recorded tree of a DGX H100.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bmc_wire import host_of
from served import Served, run

from provisioner.adapters.redfish import diagnostics, telemetry
from provisioner.adapters.redfish.readings import Reading

SEL = "/redfish/v1/Managers/1/LogServices/SEL"
JOURNAL = "/redfish/v1/Managers/HGX_BMC_0/LogServices/Journal"


def read(entry: dict[str, Any]) -> Reading:
    wire, host, _ = host_of("supermicro")
    wire.client.machine.sel.append(entry)
    return asyncio.run(diagnostics.read_logs(host.service))


def test_the_journal_of_the_baseboard_is_read_and_is_no_evidence_of_a_fault() -> None:
    entry = {"Created": "2026-01-02T03:04:05Z", "Severity": "Critical", "Message": "PSU 1 failed"}
    reading = read(entry)
    lines = diagnostics.lines_of(reading)

    assert [line.message for line in lines if line.log == SEL] == ["PSU 1 failed"]
    journal = [line for line in lines if line.log == JOURNAL]
    assert len(journal) == 8
    assert {line.severity for line in journal} == {"Warning"}
    assert [text for *_, text in diagnostics.entries_of(reading)] == ["PSU 1 failed"]


def test_a_long_message_of_a_device_is_cut() -> None:
    lines = diagnostics.lines_of(read({"Message": "x" * 9000, "Id": 7, "Severity": None}))
    (line,) = [line for line in lines if line.log == SEL]

    assert (len(line.message), line.severity, line.at) == (diagnostics.LINE_MAX, "", "")


def test_values_of_gpus_come_in_the_reports_that_a_baseboard_makes() -> None:
    _, host, _ = host_of("supermicro")

    async def scenario() -> list[str]:
        paths = await telemetry.list_reports(host.service)
        reports = [await telemetry.read(host.service, path) for path in paths]
        return [metric.name for report in reports for metric in report.metrics]

    names = asyncio.run(scenario())
    assert sum("TEMP_0" in name for name in names) == 8


def test_the_routes_name_a_bmc_of_the_node_and_are_the_staffs() -> None:
    async def scenario(served: Served) -> None:
        for kind in ("logs", "metrics"):
            path = f"/nodes/su0-n01/{kind}"
            status, refused = await served.ask("viewer", "GET", f"{path}?bmc=NIC_9")
            assert (status, refused["title"]) == (404, "There is no such BMC of this node")
            status, refused = await served.ask("viewer", "GET", path)
            assert (status, refused["type"]) == (409, "urn:provisioner:problem:bmc")
            assert (await served.ask("red", "GET", path))[0] == 403

    run(scenario)
