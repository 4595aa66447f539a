"""A recording keeps the product's facts, and nothing that belongs to the site it was made at."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import golden_requests
import hardware_page
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.recorded import RecordedTransport, Recording
from provisioner.integrations.recordings.pseudonyms import REMOVED, Pseudonyms
from provisioner.integrations.recordings.recorder import DEPTH_MAX, PAGES_MAX, Recorder
from provisioner.integrations.recordings.recording_commands import build_row
from provisioner.model.inventory import Inventory
from provisioner.ports import Unreachable

sys.path.append(str(Path(__file__).parents[1] / "real"))
from static_tree import recorded_tree

HERE = Path(__file__).parent
CASES = sorted(p.name for p in HERE.iterdir() if (p / "redfish").is_dir())
KEY = b"k" * 32
ROOT = "/redfish/v1"
# the names of these properties and the forms of their values are those of a captured R750 and a
# DGX H100; the values are our own
SITE = {
    "serial": "F54X1G9",
    "mac": "b0:7b:25:d6:99:82",
    "address": "192.168.247.199",
    "user": "tests_admin7",
    "uuid": "4c4c4544-0035-3410-8050-c6c04f314799",
    "host": "bmc7.dc1.customer.example",
    "hash": "3D180D75B6D8B8FCDC88764C13C2B089FBC84CFE",
    "tag": "Rack 7 of ACME",
    "place": "1 Secret Street",
}
SYSTEM = f"{ROOT}/Systems/1"
DRIVE = f"{SYSTEM}/Storage/Drives/Disk_{SITE['serial']}"
PLANTED: dict[str, Any] = {
    ROOT: {"Vendor": "Dell", "RedfishVersion": "1.13.1", "Systems": {"@odata.id": SYSTEM}},
    SYSTEM: {
        "@odata.id": SYSTEM,
        "Model": "PowerEdge R750",
        "SerialNumber": SITE["serial"],
        "UUID": SITE["uuid"],
        "HostName": f"idrac-{SITE['serial']}",
        "AssetTag": SITE["tag"],
        "BiosVersion": "1.9.2",
        "Version": "10.20.30.40",
        "SKU": "removed-later",
        "Location": {"PostalAddress": {"Street": SITE["place"]}, "PartLocation": "Bay 1"},
        "MACAddress": SITE["mac"].upper(),
        "Durable": SITE["mac"].replace(":", ""),
        "Attributes": {
            "Users.2.SHA256Password": SITE["hash"],
            "Users.2.UserName": SITE["user"],
            "Users.3.UserName": "root",
            "IPv4.1.Address": SITE["address"],
            "IPv4.1.Netmask": "255.255.255.192",
        },
        "Image": f"https://{SITE['host']}/images/x.iso",
        "Text": f"login of {SITE['user']} from {SITE['address']}",
        "Registry": "http://redfish.dmtf.org/schemas/v1/x.json",
        "Drives": [{"@odata.id": DRIVE}, {"@odata.id": f"{ROOT}/Systems/1/Missing"}],
        "LogServices": {"@odata.id": f"{SYSTEM}/LogServices/Sel/Entries"},
    },
    DRIVE: {"@odata.id": DRIVE, "SerialNumber": "PHTBPKK16O02F3", "Revision": "1.2.0.4"},
    f"{SYSTEM}/LogServices/Sel/Entries": {"Members": [{"Message": "private"}]},
}


def record(tree: dict[str, Any], key: bytes = KEY) -> Recording:
    recorder = Recorder(TreeTransport(tree), ADDRESS, lambda _done, _known: None)
    return asyncio.run(recorder.record(Pseudonyms(key), "recorded by a test"))


def test_no_value_of_the_site_is_in_the_recording_and_its_facts_are() -> None:
    recording = record(PLANTED)

    whole = recording.model_dump_json()
    for value in SITE.values():
        assert value.lower() not in whole.lower()
    system = recording.tree[SYSTEM]
    kept = ("Model", "BiosVersion", "Version", "SKU", "Registry")
    assert {name: system[name] for name in kept} == {name: PLANTED[SYSTEM][name] for name in kept}
    attributes = system["Attributes"]
    assert attributes["Users.2.SHA256Password"] == REMOVED
    assert (attributes["Users.3.UserName"], attributes["IPv4.1.Netmask"]) == (
        "root",
        "255.255.255.192",
    )
    assert system["Location"]["PartLocation"] == "Bay 1"
    assert (recording.removed, recording.withheld) == (1, {})
    assert recording.unread == {f"{SYSTEM}/Missing": "HTTP status 404"}
    assert "private" not in whole


def test_the_same_value_has_the_same_pseudonym_wherever_it_stands() -> None:
    recording = record(PLANTED)

    system = recording.tree[SYSTEM]
    serial = system["SerialNumber"]
    address = system["Attributes"]["IPv4.1.Address"]
    user = system["Attributes"]["Users.2.UserName"]
    assert [path for path in recording.tree if path.endswith(f"/Disk_{serial}")] == [
        system["Drives"][0]["@odata.id"]
    ]
    assert system["Text"] == f"login of {user} from {address}"
    assert system["Durable"].lower() == system["MACAddress"].replace(":", "").lower()
    assert system["MACAddress"].startswith("B0:7B:25:")  # its maker's bytes
    assert record(PLANTED).tree == recording.tree
    other = record(PLANTED, b"o" * 32).tree[SYSTEM]
    assert other["SerialNumber"] not in (serial, SITE["serial"])


def test_a_value_that_cannot_be_taken_out_withholds_its_resource() -> None:
    """A short serial number within a longer word may be another word: it is not replaced there."""
    spelled = f"x{SITE['serial']}y"
    tree = {**PLANTED, DRIVE: {"@odata.id": DRIVE, "Name": spelled}}

    recording = record(tree)

    assert recording.withheld == {"resource 1": "a serial number could not be taken out"}
    assert spelled not in recording.model_dump_json()


def compared(inventory: Inventory) -> Any:
    """The inventory without the values that have pseudonyms."""
    whole = inventory.model_dump(mode="json")
    parts = [
        {name: part[name] for name in ("kind", "slot", "version", "staged")}
        for part in whole["components"]
    ]
    return parts, [(d["kind"], d["slot"], d["model"], d["part"]) for d in whole["devices"]]


@pytest.mark.parametrize("case", [*CASES, *golden_requests.TREES])
def test_a_recording_reads_as_the_machine_that_it_was_made_of(case: str) -> None:
    reduced = case in golden_requests.TREES
    tree = golden_requests.read_tree(case) if reduced else tree_of(HERE / case)
    root = tree[ROOT]
    quirk = quirks.identify(json.loads(root) if isinstance(root, str) else root)

    recording = record(tree)

    assert recording.withheld == {}
    replay = RecordedTransport(recording.tree)
    original, replayed = (
        asyncio.run(Redfish(transport, ADDRESS, quirk).collect("node", ""))
        for transport in (TreeTransport(tree), replay)
    )
    assert compared(replayed) == compared(original)


def test_a_service_without_a_root_is_no_recording() -> None:
    with pytest.raises(Unreachable, match="HTTP status 404"):
        record({})


def test_a_resource_that_is_nested_without_end_is_left_out() -> None:
    body: dict[str, Any] = {}
    for _ in range(DEPTH_MAX + 1):
        body = {"x": body}

    recording = record({ROOT: {"Systems": {"@odata.id": SYSTEM}}, SYSTEM: body})

    assert recording.unread == {SYSTEM: f"nested more than {DEPTH_MAX} levels deep"}


def test_a_list_whose_pages_do_not_end_has_no_end_in_the_recording_either() -> None:
    page = {"Members": [{"@odata.id": ROOT}], "Members@odata.nextLink": SYSTEM}

    recording = record({ROOT: {"Systems": {"@odata.id": SYSTEM}}, SYSTEM: page})

    assert recording.unread == {SYSTEM: f"more than {PAGES_MAX} pages"}
    assert recording.tree[SYSTEM] == page


NAMES = st.sampled_from(
    ["SerialNumber", "UUID", "GUID", "MACAddress", "HostName", "UserName", "Password", "@odata.id"]
)
HOSTILE = st.recursive(
    st.none() | st.integers() | st.text() | st.from_regex(r"[0-9a-f:.%@/-]{0,80}"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | NAMES, inner),
    max_leaves=20,
)


@settings(max_examples=40)
@given(body=st.dictionaries(st.text() | NAMES, HOSTILE))
def test_nothing_that_a_bmc_says_breaks_the_replacing(body: dict[str, Any]) -> None:
    replaced, withheld = Pseudonyms(KEY).replace_all({ROOT: body})

    assert len(replaced) + len(withheld) == 1
    json.dumps(replaced)


# forms and properties that identify a machine or a site, looked for in the original by themselves
IDENTITY = re.compile(
    r'"(?:SerialNumber|ServiceTag|UUID|HostName|FQDN|Address|MACAddress|PermanentMACAddress'
    r'|EntitlementID|ArchitectureId|SNMP\.1\.EngineID|Thumbprint|SwitchConnectionID)"'
    r':\s*"([^"]{6,})"'
)
MAC = "(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}"


@pytest.mark.parametrize(
    "name",
    [  # the whole trees of Dell and of Viking take seconds; their parts are above
        "nvidia_dpu",
        pytest.param("dell", marks=pytest.mark.long),
        pytest.param("nvidia_viking", marks=pytest.mark.long),
    ],
)
def test_nothing_that_identifies_a_captured_machine_is_in_its_recording(
    name: str, tmp_path: Path
) -> None:
    tree = recorded_tree(name, tmp_path / "tree")
    recorder = Recorder(TreeTransport(tree_of(tree)), ADDRESS, lambda _done, _known: None)

    recording = asyncio.run(recorder.record(Pseudonyms(b"k" * 32), "recorded by a test"))

    assert recording.withheld == {}
    texts = recording.model_dump_json().lower()
    files = (f for f in tree.rglob("index.json") if "JsonSchemas" not in str(f))
    originals = {
        value.strip()
        for file in files
        if not re.search(r"/(Entries|LogEntries|Sessions)/", str(file))
        for value in IDENTITY.findall(file.read_text(errors="replace"))
        if any(c.isdigit() for c in value) and value.strip("0:.-fF")
    }
    public = re.compile(r"255\.|169\.254\.|127\.|::1$|fe80::$|0x0+$")
    left = sorted(v for v in originals if v.lower() in texts and not public.match(v))
    assert (left, len(originals) > 5) == ([], True)
    spelled = {value.encode().hex() for value in originals} | {
        re.sub("[:-]", "", value).lower() for value in originals if re.fullmatch(MAC, value)
    }
    assert [value for value in sorted(spelled) if value in texts] == []
    assert "begin certificate" not in texts
    row = build_row(recording)
    assert row.items > 10
    assert isinstance(row.writes["power"], int)


def test_the_page_of_recorded_hardware_has_each_recording_of_this_repository() -> None:
    tables = hardware_page.make_tables()

    assert [r.source for r in hardware_page.read_recordings() if r.source not in tables] == []
    assert tables.count("nobody yet") == len(hardware_page.read_recordings())
