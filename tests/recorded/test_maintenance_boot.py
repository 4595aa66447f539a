"""How the maintenance image is offered to a host, and which addresses and drives its BMC lists."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from scripted_bmc import V1, Bmc, reply
from tree_transport import ADDRESS

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.steps.agent_steps import from_disk, offer
from provisioner.quirks import Quirk

URL = "http://10.0.0.2:8070/maintenance.iso"
SYSTEM = f"{V1}/Systems/1"
CD = f"{V1}/Managers/1/VirtualMedia/CD"


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def tree(image: str = "", **system: Any) -> dict[str, Any]:
    drives = [link(f"{SYSTEM}/Storage/1/Drives/{n}") for n in range(3)]
    actions = {
        f"#VirtualMedia.{word}Media": {"target": f"{CD}/Actions/{word}"}
        for word in ("Insert", "Eject")
    }
    return {
        V1: {"Systems": link(f"{V1}/Systems"), "Managers": link(f"{V1}/Managers")},
        f"{V1}/Systems": {"Members": [link(SYSTEM)]},
        SYSTEM: {
            "Id": "1",
            "Boot": {"BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI"},
            "Storage": link(f"{SYSTEM}/Storage"),
            "EthernetInterfaces": link(f"{SYSTEM}/EthernetInterfaces"),
            **system,
        },
        f"{SYSTEM}/Storage": {"Members": [link(f"{SYSTEM}/Storage/1")]},
        f"{SYSTEM}/Storage/1": {"Drives": drives},
        **{f"{SYSTEM}/Storage/1/Drives/{n}": {"SerialNumber": f" S{n} "} for n in range(2)},
        f"{SYSTEM}/Storage/1/Drives/2": {"SerialNumber": "S2", "Status": {"State": "Absent"}},
        f"{SYSTEM}/EthernetInterfaces": {"Members": [link(f"{SYSTEM}/EthernetInterfaces/1")]},
        f"{SYSTEM}/EthernetInterfaces/1": {"MACAddress": "00:00:00:00:00:00",
                                           "PermanentMACAddress": "7C-C2-55-00-00-01"},
        f"{V1}/Managers": {"Members": [link(f"{V1}/Managers/1")]},
        f"{V1}/Managers/1": {"Id": "1", "VirtualMedia": link(f"{V1}/Managers/1/VirtualMedia")},
        f"{V1}/Managers/1/VirtualMedia": {"Members": [link(CD)]},
        CD: {"MediaTypes": ["CD"], "Inserted": bool(image), "Image": image, "Actions": actions},
    }  # fmt: skip


ANSWERS = {
    f"PATCH {SYSTEM}": reply(204),
    f"POST {CD}/Actions/Insert": reply(204),
    f"POST {CD}/Actions/Eject": reply(204),
}


def offered(found: Mapping[str, Any], **quirk: Any) -> list[tuple[str, Any]]:
    """What was sent to a BMC to offer the image: (path, body)."""
    bmc = Bmc(found, ANSWERS)
    client = Redfish(bmc, ADDRESS, Quirk(name="x", title="x", **quirk))

    assert asyncio.run(offer(client, URL)) is None
    return [(c.path.rpartition("/")[2], c.body) for c in bmc.sent]


def test_an_image_is_inserted_and_booted_once() -> None:
    inserted, booted = offered(tree())

    assert inserted == ("Insert", {"Image": URL, "Inserted": True, "WriteProtected": True})
    assert booted[1]["Boot"]["BootSourceOverrideTarget"] == "Cd"
    assert booted[1]["Boot"]["BootSourceOverrideEnabled"] == "Once"


def test_what_somebody_left_in_the_drive_is_ejected_first() -> None:
    assert [name for name, _ in offered(tree("http://else/where.iso"))] == ["Eject", "Insert", "1"]


def test_an_image_that_a_predecessor_inserted_is_left_there() -> None:
    assert [name for name, _ in offered(tree(URL))] == ["1"]


def test_a_host_whose_drives_take_no_images_boots_by_http() -> None:
    [(_, body)] = offered(tree(), http_boot=True)

    assert body["Boot"]["BootSourceOverrideTarget"] == "UefiHttp"
    assert body["Boot"]["HttpBootUri"] == URL


ORDER_ONLY = {"BootOrder": ["Boot0003", "Boot0002"]}
LEGACY = {"BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "Legacy"}
OVERRIDES = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}


@pytest.mark.parametrize(
    ("listed", "sent"),
    [
        # Lenovo SR670 V2 (NVIDIA/libredfish, tests/mockups/lenovo): .../Systems/1/Pending
        (ORDER_ONLY, [("1", {"Mode", "Enabled", "Target"})]),
        # GB200 (tests/mockups/nvidia_gb200): .../Systems/System_0/Settings
        (ORDER_ONLY | OVERRIDES, [("1", {"Mode"}), ("Pending", {"Enabled", "Target"})]),
        # DGX H100 (tests/mockups/nvidia_viking): .../Systems/DGX/SD
        (
            OVERRIDES | {"BootSourceOverrideMode": None},
            [("Pending", {"Mode", "Enabled", "Target"})],
        ),
    ],
)
def test_each_property_of_an_override_goes_to_the_object_that_lists_it(
    listed: dict[str, Any], sent: list[tuple[str, set[str]]]
) -> None:
    pending = f"{SYSTEM}/Pending"
    settings = {"@Redfish.Settings": {"SettingsObject": link(pending)}}
    found = tree(**settings, Boot=LEGACY) | {pending: {"Id": "Pending", "Boot": listed}}
    bmc = Bmc(found, ANSWERS | {f"PATCH {pending}": reply(204)})
    client = Redfish(bmc, ADDRESS, Quirk(name="x", title="x"))

    assert asyncio.run(client.boot_override("Pxe")) is None
    assert [
        (
            call.path.rpartition("/")[2],
            {name.removeprefix("BootSourceOverride") for name in call.body["Boot"]},
        )
        for call in bmc.sent
    ] == sent


def test_a_refused_part_of_an_override_leaves_no_override_behind() -> None:
    pending = f"{SYSTEM}/Pending"
    settings = {"@Redfish.Settings": {"SettingsObject": link(pending)}}
    found = tree(**settings, Boot=LEGACY) | {pending: {"Boot": OVERRIDES}}
    bmc = Bmc(found, {f"PATCH {SYSTEM}": reply(400), f"PATCH {pending}": reply(204)})
    client = Redfish(bmc, ADDRESS, Quirk(name="x", title="x"))

    assert asyncio.run(client.boot_override("Pxe")) is not None
    assert [c.path for c in bmc.sent] == [SYSTEM]


def test_a_service_without_the_disk_as_a_target_boots_it_anyway() -> None:
    boot = {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd"]}
    bmc = Bmc(tree(Boot=boot), ANSWERS)

    assert asyncio.run(from_disk(Redfish(bmc, ADDRESS, Quirk(name="x", title="x")))) is None
    assert bmc.sent == []


def test_drives_and_addresses_are_read_as_the_bmc_lists_them() -> None:
    client = Redfish(Bmc(tree(), {}), ADDRESS, Quirk(name="x", title="x"))

    assert asyncio.run(client.drive_serials()) == ("S0", "S1")
    assert asyncio.run(client.host_macs()) == ("7c:c2:55:00:00:01",)
