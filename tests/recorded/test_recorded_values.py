"""Values that a careless recorder leaves in: each was left in a captured tree, or stands so in one.

The names of the properties are those of an R750's, a DGX H100's and a BlueField-3's captured trees
and of Redfish's schemas; the values are our own.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tree_transport import ADDRESS, TreeTransport

from provisioner.integrations.recordings.pseudonyms import REMOVED, Pseudonyms
from provisioner.integrations.recordings.recorder import Recorder

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
TAG = "F54X1G9"
# name of the case -> what a BMC shows, and the texts that no recording may hold
LEFT_IN: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a certificate has lines": (
        {"CertificateString": "-----BEGIN CERTIFICATE-----\nMIICNTCCAbug\n-----END"},
        ("MIICNTCCAbug",),
    ),
    "an SNMP engine's id spells the service tag in hex": (
        {"ServiceTag": TAG, "SNMP.1.EngineID": f"0x80001f8804{TAG.encode().hex()}"},
        (TAG.encode().hex(),),
    ),
    "a text spells the service tag in hex": (
        {"ServiceTag": TAG, "Data": f"80001f8804{TAG.encode().hex()}"},
        (TAG.encode().hex(),),
    ),
    "a licence is named by its key": (
        {"LicenseList": ["FD00000099303962"], "Text": "FD00000099303962 was imported"},
        ("FD00000099303962",),
    ),
    "a URL holds a login": (
        {"Image": "https://media:S3cretWord@fileserver/x.iso?token=abcdef123&x=1"},
        ("media", "S3cretWord", "fileserver", "abcdef123"),
    ),
    "a share has a host": (
        {"Image": "\\\\filer7\\iso\\x.iso", "Share": "nfs.customer.example:/export/x"},
        ("filer7", "customer.example"),
    ),
    "a MAC has four spellings": (
        {
            "MACAddress": "b0:7b:25:d6:99:82",
            "Id": "NIC_B07B25D69984",
            "Peer": "b07b.25d6.9983",
            "UefiDevicePath": "Pci(0x0)/MAC(B07B25D69982,0x1)/IPv4(0.0.0.0)",
            "Ports": {"B0-7B-25-D6-99-85": {"State": "Enabled"}},
        },
        ("d69982", "d69984", "25d6.9983", "d6-99-85", "d6:99:82"),
    ),
    "a MAC in UEFI's path has no other spelling": (
        {"UefiDevicePath": "Pci(0x0)/MAC(B07B25D69982,0x1)"},
        ("d69982",),
    ),
    "a service tag is letters alone": (
        {"SKU": "HJKLMNB", "ServiceTag": "HJKLMNB", "Text": "idrac-HJKLMNB is up"},
        ("HJKLMNB",),
    ),
    "a serial is a number": ({"SerialNumber": 7700112233}, ("7700112233",)),
    "a certificate's subject is the site": (
        {"Subject": {"Organization": "ACME Cloud", "CommonName": "bmc", "City": "Springfield"}},
        ("ACME", "Springfield"),
    ),
    "a host's name has an address in it": ({"HostName": "acme-10.1.2.3"}, ("acme", "10.1.2.3")),
    "a host's name is a maker's product": ({"HostName": "dell-r750.lab.example"}, ("r750.lab",)),
    "a host's name is letters": (
        {"HostName": "atlas-bmc", "CommonName": "atlas-bmc", "Text": "atlas-bmc rebooted"},
        ("atlas",),
    ),
    "Dell's asset fields": (
        {"Attributes": {"CustomAsset.1.Value": "Project Falcon", "SysLog.1.Server1": "logs"}},
        ("Falcon", "logs"),
    ),
    "LDAP's names": (
        {"BaseDistinguishedNames": ["dc=acme,dc=example"], "ServiceAddresses": ["ldap"]},
        ("acme", '"ldap"'),
    ),
    "a place": (
        {
            "Location": {
                "Info": "US;Springfield;Hall 3",
                "Latitude": 48.1,
                "Placement": {"Row": "N"},
            }
        },
        ("Springfield", "48.1", '"N"'),
    ),
    "a password stands elsewhere too": (
        {"Password": "Calvin-2026", "Text": "login with Calvin-2026"},
        ("Calvin-2026",),
    ),
}


def record(*bodies: tuple[str, dict[str, Any]]) -> Any:
    """The recorded tree of a service whose root links to these resources."""
    links = [{"@odata.id": path} for path, _ in bodies]
    tree = {ROOT: {"Vendor": "Dell", "Links": links}, **dict(bodies)}
    recorder = Recorder(TreeTransport(tree), ADDRESS, lambda _done, _known: None)
    recording = asyncio.run(recorder.record(Pseudonyms(b"k" * 32), "recorded by a test"))
    assert recording.withheld == {}
    return recording


@pytest.mark.parametrize("case", LEFT_IN)
def test_a_value_of_the_site_is_taken_out_however_it_is_spelled(case: str) -> None:
    body, values = LEFT_IN[case]

    recording = record((SYSTEM, {"Model": "PowerEdge R750", **body}))

    whole = recording.model_dump_json()
    assert [value for value in values if value.lower() in whole.lower()] == []
    assert recording.tree[SYSTEM]["Model"] == "PowerEdge R750"


def test_spellings_of_one_value_get_pseudonyms_of_one_value() -> None:
    system = record(
        (
            SYSTEM,
            {
                "MACAddress": "b0:7b:25:d6:99:82",
                "Dashes": "B0-7B-25-D6-99-82",
                "Bare": "NIC_b07b25d69982",
                "IPv6Address": "2a00:1:2::17",
                "Long": "2a00:0001:0002:0000:0000:0000:0000:0017",
                "UUID": "4c4c4544-0035-3410-8050-c6c04f314799",
                "SystemUUID": "4C4C4544003534108050C6C04F314799",
            },
        )
    ).tree[SYSTEM]

    mac = system["MACAddress"].replace(":", "")
    assert system["Dashes"].replace("-", "").lower() == mac
    assert system["Bare"] == f"NIC_{mac}"
    assert system["Long"] == system["IPv6Address"]
    assert system["SystemUUID"].lower() == system["UUID"].replace("-", "")


def test_the_account_of_a_person_is_renamed_in_its_path_too() -> None:
    """OpenBMC names an account's resource after its user."""
    account = f"{ROOT}/AccountService/Accounts/alice"
    admin = f"{ROOT}/AccountService/Accounts/admin"
    body = {"@odata.id": account, "Id": "alice", "Name": "alice", "UserName": "alice"}

    recording = record((account, body), (admin, {"@odata.id": admin, "UserName": "admin"}))

    user = next(p for p in recording.tree if "/Accounts/user-" in p).rpartition("/")[2]
    renamed = recording.tree[f"{ROOT}/AccountService/Accounts/{user}"]
    assert (renamed["Id"], renamed["Name"], renamed["UserName"]) == (user, user, user)
    assert renamed["@odata.id"].endswith(f"/{user}")
    assert recording.tree[admin]["UserName"] == "admin"
    assert "alice" not in recording.model_dump_json()


def test_facts_of_the_product_stay() -> None:
    """A version with the form of an address was taken for one: an R750's firmware was lost."""
    body: dict[str, Any] = {
        "Broadcom_NCSI": "218.0.169.2",
        "FirmwareVersion": "7.2.2.0",
        "Address": "7.2.2.0",
        "Subject": {"Organization": "Microsoft Corporation", "CommonName": "NVIDIA BMC Web Server"},
        "UserName": "root",
        "Password": None,
        "PasswordPolicy": "Strong",
        "SerialNumber": "N/A",
        "NumericSensor": 7700112233,
        "Uri": "https://www.dell.com/support",
    }

    recording = record((SYSTEM, body))

    system = recording.tree[SYSTEM]
    changed = {name for name, value in body.items() if system[name] != value}
    assert changed == {"Address"}
    assert recording.removed == 0
    assert REMOVED not in json.dumps(system)


def test_a_text_that_no_file_can_hold_leaves_its_resource_out() -> None:
    recording = record((SYSTEM, {"Name": "half of a pair: \ud800"}))

    assert recording.unread == {SYSTEM: "the answer holds text that is not Unicode"}
