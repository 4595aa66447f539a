"""A BMC's clock is read, compared and set: through NTP where its tree has it, by hand elsewhere.

source: mockups of a DGX H100, a PowerEdge R750 and a BlueField-3 (Managers/*, NetworkProtocol).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bmc_wire import VENDORS, host_of

from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.upkeep.bmc_time import list_licences, read_clock, set_clock
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.watch_rules import find_skew
from provisioner.ports import BmcAddress, Call, Reply
from provisioner.quirks import ALL, UNKNOWN

SERVERS = ("10.0.0.2", "time.example")
MANAGER = "/redfish/v1/Managers/BMC"
ROOT: dict[str, Any] = {
    "/redfish/v1": {
        "Managers": {"@odata.id": "/redfish/v1/Managers"},
        "Systems": {"@odata.id": "/redfish/v1/Systems"},
    },
    "/redfish/v1/Systems": {"Members": []},
    "/redfish/v1/Managers": {"Members": [{"@odata.id": MANAGER}]},
}


class Pages:
    """A `BmcTransport` over resources in memory; what is written is recorded."""

    def __init__(self, manager: dict[str, Any], **more: Any) -> None:
        shown = {"@odata.id": MANAGER, "@odata.type": "#Manager.v1_5_0.Manager", "Id": "BMC"}
        self.pages = {**ROOT, MANAGER: {**shown, **manager}, **more}
        self.writes: list[tuple[str, Any]] = []

    async def request(self, _: BmcAddress, call: Call) -> Reply:
        if call.method != "GET":
            self.writes.append((call.path, call.body))
            return Reply(204, {}, b"")
        page = self.pages.get(call.path)
        return Reply(404, {}, b"{}") if page is None else Reply(200, {}, json.dumps(page).encode())


def service_of(pages: Pages, quirk: str = "") -> Service:
    address = BmcAddress("https://bmc.example")
    return Service(pages, address, ALL[quirk] if quirk else UNKNOWN)  # type: ignore[arg-type]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_wrong_clock_is_seen_and_right_once_it_has_time_servers(vendor: str) -> None:
    wire, host, _ = host_of(vendor)
    bmc = wire.client.machine.bmcs["host"]
    bmc.clock_offset_s = -86400.0 * 400

    async def story() -> tuple[Any, ...]:
        before = await read_clock(host.service, wire.now)
        refused = await set_clock(host.service, SERVERS, wire.now)
        return before, refused, await read_clock(host.service, wire.now)

    before, refused, after = asyncio.run(story())

    assert (before.ntp, before.offset, refused) == (False, "+00:00", None)
    assert before.skew_s == pytest.approx(-86400.0 * 400, abs=1.0)
    assert (after.ntp, after.ntp_servers) == (True, SERVERS)
    assert after.skew_s == pytest.approx(0.0, abs=1.0)


def test_a_tag_that_changes_with_the_clock_does_not_hold_the_clock_up() -> None:
    """The manager's tag covers its DateTime on some services: it is another one each second."""

    class Ticking(Pages):
        ticks = 0

        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            self.ticks += 1
            if call.method == "PATCH" and call.headers.get("If-Match") != "*":
                return Reply(412, {}, b"{}")
            reply = await super().request(bmc, call)
            return Reply(reply.status, {"etag": f'"{self.ticks}"'}, reply.body)

    pages = Ticking({"DateTime": "2020-01-01T00:00:00+00:00"})

    refused = asyncio.run(set_clock(service_of(pages), (), lambda: 1_800_000_000.0))

    assert refused is None
    assert pages.writes == [(MANAGER, {"DateTime": "2027-01-15T08:00:00+00:00"})]


def test_a_bmc_that_has_these_servers_is_sent_nothing() -> None:
    """A DGX H100 prints a blank before its second server."""
    ntp = {"ProtocolEnabled": True, "NTPServers": ["10.0.0.2", " time.example"]}
    network = f"{MANAGER}/NetworkProtocol"
    pages = Pages({"NetworkProtocol": {"@odata.id": network}}, **{network: {"NTP": ntp}})

    refused = asyncio.run(set_clock(service_of(pages), SERVERS, lambda: 0.0))

    assert (refused, pages.writes) == (None, [])


def test_a_bmc_without_ntp_gets_our_time_by_hand_and_only_if_it_is_wrong() -> None:
    pages = Pages({"DateTime": "1970-01-01T00:05:00Z"})

    wrong = asyncio.run(set_clock(service_of(pages), SERVERS, lambda: 1000.0))
    right = asyncio.run(set_clock(service_of(pages), SERVERS, lambda: 302.0))

    assert (wrong, right) == (None, None)
    assert pages.writes == [(MANAGER, {"DateTime": "1970-01-01T00:16:40+00:00"})]


def test_a_bmc_without_any_time_that_can_be_set_says_so() -> None:
    refused = asyncio.run(set_clock(service_of(Pages({})), SERVERS, lambda: 0.0))

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.NOT_OFFERED


@pytest.mark.parametrize(
    ("shown", "skew_s"),
    [
        ("2024-08-08T18:48:10-05:00", 0.0),  # a PowerEdge R750
        ("2024-08-08T23:48:10+00:00", 0.0),
        ("2024-08-08T23:48:10Z", 0.0),
        ("2024-08-08T23:48:40", 30.0),
        # iDRAC's LastResetTime (docs/sources/redfish.md#dates)
        ("0000-00-00T00:00:00+00:00", None),
        ("yesterday", None),
        (None, None),
    ],
)
def test_times_are_read_with_their_offset(shown: str | None, skew_s: float | None) -> None:
    pages = Pages({"DateTime": shown})

    clock = asyncio.run(read_clock(service_of(pages), lambda: 1723160890.0))

    assert clock is not None
    assert clock.skew_s == skew_s


@pytest.mark.parametrize(
    ("skew_s", "uncertainty_s", "message"),
    [
        (59.0, 0.1, ""),
        (-60.0, 0.0, ""),
        (61.0, 0.1, "its clock is 60 s or more ahead of ours"),
        (-86400.0 * 400, 90.0, "its clock is 400 days behind ours"),
        (None, 0.1, "it shows no time that can be read"),
    ],
)
def test_a_skew_over_the_limit_is_a_finding(
    skew_s: float | None, uncertainty_s: float, message: str
) -> None:
    findings = find_skew("host", skew_s, uncertainty_s, 60.0)

    assert findings is not None
    assert [f.message for f in findings] == ([message] if message else [])


def test_a_reading_that_waited_for_minutes_decides_nothing_near_the_limit() -> None:
    times = iter((1723160890.0, 1723161070.0))  # the request waited three minutes for its turn
    pages = Pages({"DateTime": "2024-08-08T23:48:10Z"})

    clock = asyncio.run(read_clock(service_of(pages), lambda: next(times)))

    assert clock is not None
    assert (clock.skew_s, clock.uncertainty_s) == (-90.0, 90.0)
    assert find_skew("host", clock.skew_s, clock.uncertainty_s, 60.0) is None


# --- licences


def test_licences_are_listed_by_name_and_never_with_their_keys() -> None:
    """source: mockups, dell/redfish/v1/Managers/iDRAC.Embedded.1/Oem/Dell/DellLicenses."""
    listed = "/redfish/v1/LicenseService/Licenses"
    pages = Pages(
        {},
        **{
            "/redfish/v1": {
                **ROOT["/redfish/v1"],
                "LicenseService": {"@odata.id": "/redfish/v1/LicenseService"},
            },
            "/redfish/v1/LicenseService": {"Licenses": {"@odata.id": listed}},
            listed: {"Members": [{"@odata.id": f"{listed}/1"}]},
            f"{listed}/1": {
                "Id": "1",
                "Name": "Remote media",
                "LicenseType": "Production",
                "LicenseString": "SECRET-KEY",
            },
        },
    )

    names = asyncio.run(list_licences(service_of(pages)))

    assert names == ("Remote media", "Production", "1")


def test_a_service_without_licences_lists_none() -> None:
    assert asyncio.run(list_licences(service_of(Pages({})))) is None
