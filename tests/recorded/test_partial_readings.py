"""A resource that a BMC did not give is not one that it lacks; a part of a list is not the list."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish import messages, session
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.eventing import subscriptions
from provisioner.adapters.redfish.eventing.event_stream import SseReader
from provisioner.adapters.redfish.eventing.events import parse_document, read_document
from provisioner.adapters.redfish.messages import correct_status
from provisioner.adapters.redfish.tasks import read_view
from provisioner.model.inventory import Moisture
from provisioner.planning.watch.leaks import read_moisture
from provisioner.ports import BmcAddress, Call, Malformed, Reply, Secret, Unreachable
from provisioner.quirks import Quirk
from provisioner.quirks.message_ids import ROWS, Meaning, MessageRow, find_meaning

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
    *(Reply(status, {}, b"") for status in (408, 425, 429)),
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
        ("IDRAC.2.8.LC068", Meaning.PENDING_JOB),
        ("IDRAC.2.8.RAC0679", Meaning.PENDING_JOB),
        ("RAC0679", Meaning.PENDING_JOB),
        ("Other.1.0.LC068", None),
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
        (" IDRAC.2.8.SWC0700 ", Meaning.NOT_READY),
        ("Update.1.0.UpdateNotInProgress", None),
        ("Ami.1.0.LicenseNotRequired", None),
        ("", None),
        ("x." * 400 + "NotReady", None),
    ],
)
def test_an_id_means_what_its_registry_says(message_id: str, meaning: Meaning | None) -> None:
    assert find_meaning(message_id) is meaning


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keys[:40])
def test_each_key_that_a_row_names_has_its_meaning(row: MessageRow) -> None:
    registry = row.registry.split("|")[0] or "Base"
    named = row.keys.split("|") if re.fullmatch(r"[\w|]+", row.keys) else []

    assert row.source
    assert {find_meaning(f"{registry}.1.0.{key}") for key in named} <= {row.meaning}


@pytest.mark.parametrize(
    ("message_id", "severity", "refused"),
    [
        ("iLO.2.14.SystemResetRequired", "", False),
        ("iLO.2.34.ServerConfigurationLockEnabled", "", True),
        ("IDRAC.2.8.SWC0700", "Warning", True),
        ("SMC.v1_0_0.OemBiosSettingFileAlreadyExists", "Warning", True),
        ("Base.1.0.OemLicenseNotPassed", "", True),
        ("Base.1.12.InternalError", "Critical", True),
        ("Base.1.12.PropertyNotWritable", "Warning", False),  # the rest may have been taken
        ("Base.1.12.Success", "OK", False),
        ("Example.1.0.NobodyKnowsThisOne", "", False),
    ],
)
def test_a_write_is_refused_by_what_its_answer_says(
    message_id: str, severity: str, refused: bool
) -> None:
    said = {"MessageId": message_id, "Message": "x", "Severity": severity}
    body = {"error": {"code": "x", "@Message.ExtendedInfo": [said]}}
    answer = Reply(200, {}, json.dumps(body).encode())

    assert (correct_status(answer, read=False).status == 500) is refused


def test_a_resource_that_was_there_is_missing_until_a_second_look() -> None:
    found = tree()
    client = client_of(Bmc(found))

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert (await client.service.read_system()) is not None
        del found[SYSTEM]
        with pytest.raises(Unreachable, match="though it was there before"):
            await client.service.get(SYSTEM)
        later = loop.time() + 61
        loop.time = lambda: later  # type: ignore[method-assign]
        assert await client.service.get(SYSTEM) == {}

    asyncio.run(story())


def test_what_its_parent_lists_no_more_is_absent_at_once() -> None:
    found = tree()
    client = client_of(Bmc(found))

    async def story() -> list[Any]:
        await client.service.walk().read_members(f"{V1}/Chassis")
        del found[f"{V1}/Chassis/1"]
        found[f"{V1}/Chassis"] = collection(f"{V1}/Chassis")
        walk = client.service.walk()
        assert await walk.read_members(f"{V1}/Chassis") == []
        return walk.gaps

    assert asyncio.run(story()) == []


@pytest.mark.parametrize("answer", [REFUSALS[0], REFUSALS[4], None])
def test_a_subscription_that_cannot_be_read_is_neither_gone_nor_others(
    answer: Reply | None,
) -> None:
    path = f"{V1}/EventService/Subscriptions/1"
    inside = b'{"error": {"code": "Base.1.0.InternalError"}}'
    client = client_of(Bmc(tree(), answer, raw={} if answer is not None else {path: inside}))

    for act in (subscriptions.is_standing, subscriptions.end_subscription):
        with pytest.raises(Unreachable):
            asyncio.run(act(client.service, path, "https://192.0.2.1/a"))


TASK = f"{V1}/TaskService/Tasks/7"
MONITOR = f"{V1}/TaskService/TaskMonitors/7"


@pytest.mark.parametrize(
    ("path", "status", "message_id", "done"),
    [
        (TASK, 200, "Base.1.12.InternalError", False),
        (TASK, 400, "IDRAC.2.8.SWC0700", False),
        (MONITOR, 400, "IDRAC.2.8.SWC0700", False),
        (MONITOR, 400, "Update.1.0.ApplyFailed", True),
        (MONITOR, 200, "Base.1.12.InternalError", True),
    ],
)
def test_a_task_ends_by_its_own_word_and_not_by_a_failed_read(
    path: str, status: int, message_id: str, done: bool
) -> None:
    answer = correct_status(refusal(status, message_id), read=True)

    assert read_view(answer, path).done is done


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
    rb'"row\x4"',  # an escape that JSON does not have
    rb'"row\u12"',
    rb'["fine", "C:\parts"]',
    b"0x1F",
    b"007",
    b"None",
    b"row four",
    b"'row four'",
    b"",
    b"9" * 5000,  # more digits than Python reads
]


@pytest.mark.parametrize("raw", DAMAGED)
def test_a_damaged_field_is_lost_alone(raw: bytes) -> None:
    body = json.dumps(tree()[SYSTEM], indent=1).encode().replace(b'"row four"', raw)

    seen = asyncio.run(client_of(Bmc(tree(), raw={SYSTEM: body})).read_identity())

    assert seen.system_serial == "S-77"
    assert seen.power.value == "Off"
    assert [g.source for g in seen.gaps if "AssetTag" in g.detail] == [SYSTEM]


@pytest.mark.parametrize("raw", DAMAGED)
def test_a_damaged_field_of_a_packed_body_is_lost_alone(raw: bytes) -> None:
    body = json.dumps(tree()[SYSTEM], indent=1).encode().replace(b'"row four"', raw)

    seen = asyncio.run(client_of(Bmc(tree(), raw={SYSTEM: gzip.compress(body)})).read_identity())

    assert seen.system_serial == "S-77"
    assert [g.source for g in seen.gaps if "AssetTag" in g.detail] == [SYSTEM]


def test_a_packed_body_that_breaks_off_is_no_empty_resource() -> None:
    packed = gzip.compress(json.dumps(tree()[SYSTEM]).encode())[:-9]

    with pytest.raises(Unreachable, match="packed by gzip, and damaged"):
        asyncio.run(client_of(Bmc(tree(), raw={SYSTEM: packed})).reset_system("On"))


EVENT = {"MessageId": "ResourceEvent.1.0.ResourceStatusChangedCritical", "Message": "the words"}
DOCUMENTS: dict[str, Any] = {
    "a list": {"Context": "c", "Events": [{"MessageId": "X.1.0.Y"}, EVENT]},
    "a record alone": {**EVENT, "Context": "c"},
}


@pytest.mark.parametrize("raw", [one for one in DAMAGED if not one.startswith(b'"one"')])
@pytest.mark.parametrize("form", DOCUMENTS)
def test_a_damaged_field_of_an_event_is_lost_alone_and_looked_for(form: str, raw: bytes) -> None:
    # a bare CR ends a line of a stream, and so the event with it
    body = json.dumps(DOCUMENTS[form]).encode().replace(b'"the words"', raw)
    pushed = read_document(parse_document(body))
    frames = [] if b"\r" in raw else SseReader().feed(b"id: 7\ndata: " + body + b"\n\n")

    for shown in (pushed, *[read_document(frame.data) for frame in frames]):
        assert shown.context == "c"
        assert shown.events[-1].key == "ResourceStatusChangedCritical"
        assert shown.unread == 1
        assert shown.asks_for_a_look


def test_a_login_is_not_refused_for_a_damaged_field_of_the_root_or_the_session() -> None:
    body = b'{"@odata.id": "/redfish/v1/SessionService/Sessions/1", "Name": "a\xff"}'

    assert session.sessions_path({"Links": {"Sessions": link("/s")}}) == "/s"
    assert messages.read_document(Reply(201, {}, body)) == {
        "@odata.id": "/redfish/v1/SessionService/Sessions/1"
    }
    with pytest.raises(Malformed):
        messages.read_document(Reply(200, {}, b"<html>"))


ERROR = {"code": "Base.1.4.0.InternalError", "message": "internal"}


@pytest.mark.parametrize("path", [f"{V1}/Systems", SYSTEM])
def test_an_error_beside_what_was_read_is_a_gap(path: str) -> None:
    found = {**tree(), path: {**tree()[path], "error": ERROR}}

    seen = asyncio.run(client_of(Bmc(found)).read_identity())

    assert seen.system_serial == "S-77"
    assert [g.source for g in seen.gaps if "InternalError" in g.detail] == [path]


INFO = "@Message.ExtendedInfo"
FAULT = {"MessageId": "Base.1.4.0.InternalError", "Message": "internal"}
LATER = {"MessageId": "IDRAC.2.8.SWC0700", "Message": "not ready", "Severity": "Warning"}
LOST = {
    "MessageId": "OEM.1.0.PartLost",
    "Message": "a part was lost",
    "MessageSeverity": "critical",
}
ADVICE = {"MessageId": "iLO.2.14.SystemResetRequired", "Message": "reset", "Severity": "Warning"}


@pytest.mark.parametrize("place", [INFO, f"Members{INFO}"])
@pytest.mark.parametrize(
    ("said", "gaps"), [(FAULT, 1), (LATER, 1), (LOST, 1), (ADVICE, 0), (ERROR, 0)]
)
def test_a_message_beside_what_was_read_is_a_gap_if_it_tells_of_a_fault(
    place: str, said: dict[str, Any], gaps: int
) -> None:
    path = f"{V1}/Systems"
    found = {**tree(), path: {**tree()[path], place: [said]}}

    seen = asyncio.run(client_of(Bmc(found)).read_identity())

    assert seen.system_serial == "S-77"
    assert len([g for g in seen.gaps if "incomplete" in g.detail]) == gaps


@pytest.mark.parametrize("word", ["Critical", "critical", "CRITICAL"])
@pytest.mark.parametrize("key", ["TaskStatus", "JobStatus"])
def test_a_status_is_read_in_any_case(key: str, word: str) -> None:
    state = key.replace("Status", "State")
    body = json.dumps({state: "completed", key: word, "Messages": []}).encode()

    view = read_view(Reply(200, {}, body), TASK)

    assert view.done
    assert view.failed


@pytest.mark.parametrize(
    ("more", "asks"),
    [
        ({}, False),
        ({"Events@odata.count": 1}, False),
        ({"Events@odata.count": 5}, True),
        ({"Events@odata.nextLink": f"{V1}/EventService/SSE?$skip=1"}, True),
        ({"Events@odata.count": "many"}, False),
    ],
)
def test_records_that_a_document_counts_and_does_not_have_are_looked_for(
    more: dict[str, Any], asks: bool
) -> None:
    quiet = {"MessageId": "Base.1.0.Success", "Message": "fine", "Severity": "OK"}

    assert read_document({"Events": [quiet], **more}).asks_for_a_look is asks


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


NVIDIA_MANAGER = {
    "Id": "BMC_0",
    "Model": "OpenBmc",
    "FirmwareVersion": "GB300Nvl-25.06-1",
    "Oem": {"Nvidia": {}, "OpenBmc": {}},
}
BASEBOARD = {**NVIDIA_MANAGER, "Id": "HGX_BMC_0", "Oem": {"Nvidia": {}}}


@pytest.mark.parametrize(
    ("managers", "name"),
    [
        ([NVIDIA_MANAGER], "nvidia_openbmc"),
        ([BASEBOARD, NVIDIA_MANAGER], "nvidia_openbmc"),
        ([BASEBOARD], "nvidia_openbmc"),  # the baseboard's own BMC
        ([BASEBOARD, {"Id": "BMC", "Oem": {"Ami": {}}}], "ami_megarac"),
        ([{"Id": "BMC", "Oem": {"Ami": {}, "Nvidia": {}}}], "ami_megarac"),
        ([{"Id": "1", "Model": "iLO 6", "Oem": {"Hpe": {}}}], "hpe_ilo"),
        ([{"Id": "1", "Oem": {"Lenovo": {}}}, BASEBOARD], "lenovo_xcc"),
        ([{"Id": "1", "Actions": {"Oem": {"#DellManager.ResetToDefaults": {}}}}], "dell_idrac"),
        ([{"Id": "1", "Actions": {"Oem": {"#HpeiLO.ClearRestApiState": {}}}}], "hpe_ilo"),
        ([{"Id": "1", "Actions": {"Oem": {"#AMIManager.RedfishDBReset": {}}}}], "ami_megarac"),
        ([BASEBOARD, {"Id": "1", "Oem": {"SUPERMICRO": {}}}], "supermicro"),
        ([{"Id": "Self", "Oem": {"Ami": {}, "OpenBmc": {}}}], "unknown"),  # by the standard
        ([{"Id": "bmc", "Model": "OpenBmc", "Oem": {"OpenBmc": {}}}], "unknown"),
        ([{"Id": "1", "Oem": {}}], None),
        ([{"Id": "bmc", "Model": "OpenBmc"}], None),  # the namespaces are left out
        ([BASEBOARD, {"Id": "1"}], None),
        ([], None),
    ],
)
def test_the_managers_tell_the_software(managers: list[dict[str, Any]], name: str | None) -> None:
    found = quirks.identify_managers(managers)

    assert (found.name if found is not None else None) == name


@pytest.mark.parametrize(
    ("root", "name", "stated"),
    [
        ({"Vendor": "NVIDIA", "Oem": {"Nvidia": {}}}, "nvidia_openbmc", True),
        # a licensed stack shows the GPU maker's namespace too: its managers tell
        ({"Vendor": "NVIDIA", "Oem": {"Nvidia": {}, "Ami": {}}}, "nvidia_openbmc", False),
        ({"Vendor": "Supermicro", "Oem": {"Supermicro": {}, "Nvidia": {}}}, "supermicro", False),
        ({"Vendor": "Dell", "Oem": {"Dell": {}, "Nvidia": {}}}, "dell_idrac", False),
        ({"Vendor": "HPE", "Product": "Cray XD670", "Oem": {"Ami": {}}}, "hpe_ilo", False),
        ({"Vendor": "Lenovo", "Oem": {"Ami": {}}}, "lenovo_xcc", False),
        ({"Vendor": "Dell", "Oem": {"OpenBmc": {}}}, "dell_idrac", False),
        ({"Vendor": "GIGABYTE", "Oem": {"Ami": {}, "OpenBMC": {}}}, "ami_megarac", True),
        ({"Vendor": "ASUSTeK", "Product": "AMI Redfish Server"}, "ami_megarac", True),
        ({"Vendor": ["Dell"], "Product": None, "Oem": []}, "unknown", False),
        ({"Vendor": "xFusion", "Oem": {"xFusion": {}}}, "unknown", False),
    ],
)
def test_a_root_states_its_software_only_if_it_names_no_other(
    root: dict[str, Any], name: str, stated: bool
) -> None:
    found = quirks.identify(root)

    assert (found.name, quirks.is_stated(root, found)) == (name, stated)


def of_maker(vendor: str, product: str, manager: dict[str, Any]) -> dict[str, Any]:
    found = tree()
    found[V1] |= {"Vendor": vendor, "Product": product}
    found[f"{V1}/Managers/1"] |= {**manager, "Id": "1"}
    action = {"target": f"{V1}/Chassis/1/Actions/Oem/NvidiaChassis.AuxPowerReset"}
    found[f"{V1}/Chassis/1"]["Actions"] = {"Oem": {"#NvidiaChassis.AuxPowerReset": action}}
    return found


@pytest.mark.parametrize(
    ("vendor", "product"),
    [
        ("WIWYNN", "Project Example"),
        ("Supermicro", "ARS-121GL"),
        ("Lenovo", "ThinkSystem N380"),
        ("NVIDIA", "GB300 NVL"),
        ("Dell", "PowerEdge XE9712"),
    ],
)
def test_a_tray_of_any_maker_is_driven_as_the_software_on_it(vendor: str, product: str) -> None:
    found = of_maker(vendor, product, NVIDIA_MANAGER)
    client = Redfish(Bmc(found), ADDRESS, quirks.identify(found[V1]))

    target = asyncio.run(client.find_ac_cycle())

    assert client.quirk.name == "nvidia_openbmc"
    assert target == f"{V1}/Chassis/1/Actions/Oem/NvidiaChassis.AuxPowerReset"


def test_a_software_that_cannot_be_read_is_looked_for_again() -> None:
    found = of_maker("WIWYNN", "Project Example", NVIDIA_MANAGER)
    manager = f"{V1}/Managers/1"
    bmc = Bmc(found, raw={manager: b'{"error": {"code": "Base.1.0.InternalError"}}'})
    client = Redfish(bmc, ADDRESS, quirks.identify(found[V1]))

    asyncio.run(client.learn())
    assert client.quirk is quirks.UNKNOWN
    del bmc._raw[manager]
    asyncio.run(client.learn())

    assert client.quirk.name == "nvidia_openbmc"


UNLISTED: dict[str, Callable[[Redfish], Awaitable[object]]] = {
    "AC cycle": lambda c: c.find_ac_cycle(),
    "HTTP boot": lambda c: c.boot_override("UefiHttp", http_uri="http://192.0.2.2/a.efi"),
}


@pytest.mark.parametrize("name", UNLISTED)
@pytest.mark.parametrize("declared", ["supermicro", "nvidia_openbmc"])
def test_what_is_not_listed_is_not_used_on_another_software(name: str, declared: str) -> None:
    oem = "Ami" if declared == "supermicro" else "Lenovo"
    found = of_maker("X", "Y", {"Oem": {oem: {}}})
    del found[f"{V1}/Chassis/1"]["Actions"]
    allowed = {"BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe"]}
    found[SYSTEM]["Boot"] = {"BootSourceOverrideTarget": "None", **allowed}
    bmc = Bmc(found)
    client = Redfish(bmc, ADDRESS, quirks.ALL[declared].model_copy())  # as a person declared it

    refused = asyncio.run(UNLISTED[name](client))

    assert not isinstance(refused, str)
    assert refused is not None
    assert [asked for asked in bmc.asked if not asked.startswith("GET")] == []


def test_a_wet_detector_that_calls_itself_absent_is_wet() -> None:
    assert read_moisture("Critical", "OK", "Absent") is Moisture.WET
    assert read_moisture("Absent", "OK", "Absent") is None
    assert read_moisture(None, "OK", "Enabled") is Moisture.UNREADABLE
    assert read_moisture("OK", "OK", "Disabled") is Moisture.UNREADABLE
