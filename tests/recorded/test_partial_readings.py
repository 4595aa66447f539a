"""A resource that a BMC did not give is not one that it lacks; a part of a list is not the list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.parsing import parse_fields
from provisioner.model.inventory import Moisture
from provisioner.planning.watch.leaks import read_moisture
from provisioner.ports import BmcAddress, Call, Reply, Secret, Unreachable
from provisioner.quirks import Quirk
from provisioner.quirks.message_ids import Meaning, find_meaning

V1 = "/redfish/v1"
SYSTEM = f"{V1}/Systems/1"


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(path: str, *names: str) -> dict[str, Any]:
    return {"@odata.id": path, "Members": [link(f"{path}/{name}") for name in names]}


def tree() -> dict[str, Any]:
    names = ("Systems", "Managers", "Chassis", "AccountService")
    return {
        V1: {"@odata.id": V1, **{name: link(f"{V1}/{name}") for name in names}},
        f"{V1}/Systems": collection(f"{V1}/Systems", "1"),
        f"{V1}/Managers": collection(f"{V1}/Managers", "1"),
        f"{V1}/Chassis": collection(f"{V1}/Chassis", "1"),
        f"{V1}/Chassis/1": {"@odata.id": f"{V1}/Chassis/1", "Id": "1"},
        f"{V1}/Managers/1": {"@odata.id": f"{V1}/Managers/1", "Id": "1", "ManagerType": "BMC"},
        SYSTEM: {
            "@odata.id": SYSTEM,
            "Id": "1",
            "SerialNumber": "S-77",
            "PowerState": "Off",
            "AssetTag": "row four",
        },
    }


class Bmc(TreeTransport):
    """A tree whose paths below the root may all be refused, or be given as these bytes."""

    def __init__(
        self,
        found: dict[str, Any],
        refusal: Reply | None = None,
        raw: dict[str, bytes] | None = None,
    ) -> None:
        super().__init__(found)
        self._refusal = refusal
        self._raw = raw or {}

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.path in self._raw:
            return Reply(200, {}, self._raw[call.path])
        if self._refusal is not None and call.path.rstrip("/") != V1:
            return self._refusal
        return await super().request(bmc, call)


def client_of(bmc: Bmc) -> Redfish:
    return Redfish(bmc, ADDRESS, Quirk(name="x", title="x"))


def refusal(status: int, message_id: str, *, code_only: bool = False) -> Reply:
    error: dict[str, Any] = {"code": message_id if code_only else "Base.1.12.GeneralError"}
    if not code_only:
        error["@Message.ExtendedInfo"] = [{"MessageId": message_id, "Message": "later"}]
    return Reply(status, {}, json.dumps({"error": error}).encode())


READINGS: dict[str, Callable[[Redfish], Awaitable[object]]] = {
    "power": lambda c: c.power(),
    "reset": lambda c: c.reset_system("On"),
    "reset of the BMC": lambda c: c.reset_bmc(),
    "boot": lambda c: c.boot_override("Pxe"),
    "media": lambda c: c.insert_media("http://192.0.2.5/b.iso"),
}
REFUSALS = [
    refusal(400, "IDRAC.2.8.SWC0700"),
    refusal(400, "SWC0700"),
    refusal(404, "IDRAC.1.6.SWC0700"),
    refusal(400, "IDRAC.1.6.SWC0700", code_only=True),
    refusal(400, "iLO.2.14.InvalidOperationForSystemState"),
    refusal(400, "iLO.2.33.UnableToModifyDuringSystemPOST"),
    refusal(404, "Base.1.8.ServiceTemporarilyUnavailable"),
    refusal(409, "Update.1.0.UpdateInProgress"),
    refusal(400, "Example.1.0.NobodyKnowsThisOne"),
    refusal(403, "SMC.1.0.OemLicenseNotPassed"),
]


@pytest.mark.parametrize("refused", REFUSALS, ids=lambda r: f"{r.status} {r.body[-70:-40]!r}")
@pytest.mark.parametrize("name", READINGS)
def test_a_bmc_that_refuses_a_read_does_not_lack_what_was_read(name: str, refused: Reply) -> None:
    client = client_of(Bmc(tree(), refused))

    with pytest.raises(Unreachable, match=f"HTTP status {refused.status}"):
        asyncio.run(READINGS[name](client))  # type: ignore[arg-type]


def test_a_refused_list_of_accounts_does_not_lack_the_account() -> None:
    client = client_of(Bmc(tree(), REFUSALS[0]))

    refused = asyncio.run(client.set_password("root", Secret("irrelevant-here")))

    assert refused is not None
    assert refused.reason.value == "busy"


def test_a_system_without_a_reset_action_still_offers_none() -> None:
    refused = asyncio.run(client_of(Bmc(tree())).reset_system("On"))

    assert refused is not None
    assert "offers no ComputerSystem.Reset" in refused.detail


@pytest.mark.parametrize(
    ("message_id", "meaning"),
    [
        ("IDRAC.2.2.SWC0700", Meaning.NOT_READY),
        ("SWC0700", Meaning.NOT_READY),
        ("Other.1.0.SWC0700", None),
        ("Base.1.18.1.PasswordChangeRequired", Meaning.CHANGE_PASSWORD),
        ("iLO.2.14.LicenseKeyRequired", Meaning.LICENCE),
        ("Base.1.0.0.OemLicenseNotPassed", Meaning.LICENCE),
        ("SMC.1.0.OemFirmwareAlreadyInUpdateMode", Meaning.PENDING_JOB),
        ("iLO.2.14.SystemResetRequired", Meaning.NEEDS_RESET),
        ("Base.1.5.PropertyNotWritable", Meaning.REFUSED_PROPERTY),
        ("IDRAC.1.6.SYS410", Meaning.REFUSED_PROPERTY),
        ("IDRAC.1.6.SYS403", None),
        ("Base.1.4.0.InternalError", None),
        ("", None),
        ("x." * 400 + "NotReady", None),
    ],
)
def test_an_id_means_what_its_registry_says(message_id: str, meaning: Meaning | None) -> None:
    assert find_meaning(message_id) is meaning


DAMAGED = [
    b'"row\r4"',
    b'"row\t4"',
    b'"row\x004"',
    b'"\xff\xfe"',
    b'"a\xae"',
    b'["fine", "\xe9"]',
    b"NaN",
    b"[1, -Infinity]",
    b"1e999",
    b'"one", "AssetTag": "two"',
]


@pytest.mark.parametrize("raw", DAMAGED)
def test_a_damaged_field_is_lost_alone(raw: bytes) -> None:
    body = json.dumps(tree()[SYSTEM], indent=1).encode().replace(b'"row four"', raw)

    seen = asyncio.run(client_of(Bmc(tree(), raw={SYSTEM: body})).read_identity())

    assert seen.system_serial == "S-77"
    assert seen.power.value == "Off"
    assert [g.source for g in seen.gaps if "AssetTag" in g.detail] == [SYSTEM]


def test_sound_json_loses_nothing() -> None:
    assert parse_fields(b'{"a": "l\\nl", "b":\t1}') == ({"a": "l\nl", "b": 1}, ())
    assert parse_fields(b'\xef\xbb\xbf{"a": 1,\r\n "a": 1}') == ({"a": 1}, ())
    assert parse_fields(b'{"a": null, "b": {}}') == ({"a": None, "b": {}}, ())


ERROR = {"code": "Base.1.4.0.InternalError", "message": "internal"}


@pytest.mark.parametrize("path", [f"{V1}/Systems", SYSTEM])
def test_an_error_beside_what_was_read_is_a_gap(path: str) -> None:
    found = {**tree(), path: {**tree()[path], "error": ERROR}}

    seen = asyncio.run(client_of(Bmc(found)).read_identity())

    assert seen.system_serial == "S-77"
    assert [g.source for g in seen.gaps if "InternalError" in g.detail] == [path]


def test_an_error_alone_is_no_system_without_actions() -> None:
    with pytest.raises(Unreachable, match="InternalError"):
        asyncio.run(client_of(Bmc({**tree(), SYSTEM: {"error": ERROR}})).reset_system("On"))


def test_a_message_of_success_is_no_error() -> None:
    found = {**tree(), SYSTEM: {**tree()[SYSTEM], "error": {"code": "Base.1.0.Success"}}}

    seen = asyncio.run(client_of(Bmc(found)).read_identity())

    assert [g for g in seen.gaps if "error" in g.detail] == []


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [
        ("Supermicro", "GB NVL", "nvidia_openbmc"),
        ("Lenovo", "GB300 NVL", "nvidia_openbmc"),
        ("WIWYNN", "GB200 NVL", "nvidia_openbmc"),
        ("Supermicro", "SYS-821GE-TNHR", "supermicro"),
        ("Lenovo", "ThinkSystem SR680a V3", "lenovo_xcc"),
    ],
)
def test_the_software_decides_before_the_maker(vendor: str, product: str, name: str) -> None:
    assert quirks.identify({"Vendor": vendor, "Product": product}).name == name


def test_an_unlisted_path_is_not_used_where_another_action_is_listed() -> None:
    found = tree()
    action = {"target": f"{V1}/Chassis/1/Actions/Oem/NvidiaChassis.AuxPowerReset"}
    found[f"{V1}/Chassis/1"]["Actions"] = {"Oem": {"#NvidiaChassis.AuxPowerReset": action}}
    plain, other = (
        asyncio.run(Redfish(Bmc(t), ADDRESS, quirks.ALL["supermicro"]).find_ac_cycle())
        for t in (tree(), found)
    )

    assert plain == f"{SYSTEM}/Actions/Oem/OemSystemExtensions.Reset"
    assert not isinstance(other, str)


def test_a_wet_detector_that_calls_itself_absent_is_wet() -> None:
    assert read_moisture("Critical", "OK", "Absent") is Moisture.WET
    assert read_moisture("Absent", "OK", "Absent") is None
    assert read_moisture(None, "OK", "Enabled") is Moisture.UNREADABLE
    assert read_moisture("OK", "OK", "Disabled") is Moisture.UNREADABLE
