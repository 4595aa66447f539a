"""Logs of a BMC as people read them: every entry in order, the journal beside the event log.

source: Managers/HGX_BMC_0/LogServices/Journal in the recorded tree of a DGX H100.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bmc_wire import host_of
from served import Served, run

from provisioner.adapters.redfish import accounts as telemetry
from provisioner.adapters.redfish import diagnostics
from provisioner.adapters.redfish.hardware_tree import Reading
from provisioner.adapters.redfish.upkeep.leaks import list_counts, read_link_counters

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


def links_of(part: str) -> dict[tuple[str, str], int]:
    """The counters of a part's links by port and name; one GPU's first link has replays."""
    wire, host, _ = host_of("supermicro")
    wire.client.machine.devices["GPU_SXM_2"].traits["nvlink_errors"] = 7
    reading = asyncio.run(read_link_counters(host.service, part))
    assert reading.gaps == ()
    assert reading.part == (part or "GPU_SXM_1")
    return {(c.port.rsplit("/", 2)[1], c.name): c.count for c in reading.counters}


def test_each_link_of_a_gpu_and_of_a_switch_has_its_counters() -> None:
    gpu = links_of("GPU_SXM_2")
    switch = links_of("NVSwitch_0")

    assert gpu["NVLink_0", "NVLinkErrors.ReplayCount"] == 7
    assert gpu["NVLink_1", "NVLinkErrors.ReplayCount"] == 0
    assert gpu["NVLink_0", "RXBytes"] > 0
    assert (len({p for p, _ in gpu}), len({p for p, _ in switch})) == (18, 32)
    assert links_of("CPU_7") == {}
    assert len({p for p, _ in links_of("")}) == 18  # those of the first GPU


def test_counts_are_named_without_the_makers_own_objects() -> None:
    recorded = {
        "@odata.id": "/x",
        "RXBytes": 5,
        "Oem": {
            "Nvidia": {"RXNoProtocolBytes": 4, "NVLinkErrors": {"ReplayCount": 1, "Bad": True}}
        },
        "RX": {"Frames": 3, "Rate": 0.5, "Below": -1},
    }

    assert list_counts(recorded) == {
        "RXBytes": 5,
        "RXNoProtocolBytes": 4,
        "NVLinkErrors.ReplayCount": 1,
        "RX.Frames": 3,
    }


def test_the_routes_name_a_bmc_of_the_node_and_are_the_staffs() -> None:
    async def scenario(served: Served) -> None:
        status, refused = await served.ask("viewer", "GET", "/nodes/su0-n01/ports")
        assert (status, refused["type"]) == (409, "urn:provisioner:problem:leaf")
        assert (await served.ask("red", "GET", "/nodes/su0-n01/ports"))[0] == 403
        for kind in ("logs?limit=9", "metrics?bmc=host", "links?part=GPU_SXM_1"):
            path = f"/nodes/su0-n01/{kind}"
            strange = path.replace("bmc=host&", "").replace("?bmc=host", "?")
            status, refused = await served.ask("viewer", "GET", f"{strange}&bmc=NIC_9")
            assert (status, refused["title"]) == (404, "There is no such BMC of this node")
            status, refused = await served.ask("viewer", "GET", path)
            assert (status, refused["type"]) == (409, "urn:provisioner:problem:bmc")
            assert (await served.ask("red", "GET", path))[0] == 403

    run(scenario)
