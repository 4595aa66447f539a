"""What a vendor demands of an upload, and that the client sends it so.

source: fwupd and NVIDIA/libredfish lenovo.rs (Lenovo: empty Targets, no blank in the file name),
captured tree of an SR670 V2 (HttpPushUriTargetsBusy), NVIDIA/libredfish dell.rs (Dell: Oem). The
keys of the refusals are assumed, but for InternalError.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from bmc_client import Client
from bmc_wire import VENDORS, Wire

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish, TaskRef
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.twin.wires import encode_multipart
from provisioner.ports import BmcAddress, Call, Reply, Upload

UPDATE = "/redfish/v1/UpdateService"
BUSY = "HttpPushUriTargetsBusy"
IMAGE = make_image("host.bios", {"UEFI": "22J-1.60", "Installed-159-*": "2.1.0"})


class Uploading(Wire):
    """Also carries uploads, and keeps what was claimed when one came, and what was answered."""

    def __init__(self, vendor: str) -> None:
        super().__init__(vendor)
        self.uploads: list[tuple[Any, int, bytes]] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if not isinstance(call.body, Upload):
            return await super().request(bmc, call)
        kind, body = encode_multipart(call.body)
        headers = {**self.client.headers, "content-type": kind}
        claimed = self.client.get(UPDATE).get(BUSY)
        answer = self.client.service.handle(call.method, call.path, {}, headers, body)
        self.uploads.append((claimed, answer.status, body))
        names = {k.lower(): str(v) for k, v in answer.headers.items()}
        return Reply(answer.status, names, answer.body)


def push_image(vendor: str, file: Path) -> tuple[Uploading, Any]:
    """Push a BIOS with the vendor's client and end the push."""
    file.write_bytes(IMAGE)
    wire = Uploading(vendor)
    address = BmcAddress("https://bmc.example")
    host = Redfish(wire, address, quirks.ALL[VENDORS[vendor]], wire.sleep)

    async def story() -> Any:
        sent = await host.push("host.bios", ("UEFI",), file)
        wire.client.later(900)
        await host.end_push()
        return sent

    return wire, asyncio.run(story())


def test_lenovo_is_claimed_while_it_takes_an_image_with_a_blank_in_its_name(
    tmp_path: Path,
) -> None:
    wire, sent = push_image("lenovo", tmp_path / "uefi 22j.uxz")

    assert isinstance(sent, TaskRef)
    assert [(claimed, status) for claimed, status, _ in wire.uploads] == [(True, 202)]
    assert b'filename="uefi_22j.uxz"' in wire.uploads[0][2]
    assert wire.client.get(UPDATE)[BUSY] is False


def test_dell_gets_its_oem_part(tmp_path: Path) -> None:
    wire, sent = push_image("dell", tmp_path / "BIOS.EXE")

    assert isinstance(sent, TaskRef)
    assert [status for _, status, _ in wire.uploads] == [202]


@pytest.mark.parametrize(
    ("vendor", "parameters", "status", "key"),
    [
        ("lenovo", {"Targets": ["/redfish/v1/UpdateService/FirmwareInventory/UEFI"]}, 400,
         b"PropertyValueNotInList"),
        ("lenovo", {"Targets": []}, 202, b""),
        ("lenovo", {"Targets": ["/redfish/v1/UpdateService/FirmwareInventory/BMC-Backup"]}, 202,
         b""),
        ("dell", {"Targets": []}, 400, b"PropertyMissing"),
        ("supermicro", {"Targets": ["/redfish/v1/Systems/1/Bios"]}, 202, b""),
    ],
)  # fmt: skip
def test_an_upload_that_is_not_in_the_vendors_form_is_refused(
    vendor: str, parameters: dict[str, Any], status: int, key: bytes
) -> None:
    answer = Client(vendor=vendor).push(IMAGE, parameters)

    assert answer.status == status
    assert key in answer.body


def test_lenovo_answers_a_blank_in_the_file_name_with_an_internal_error() -> None:
    client = Client(vendor="lenovo")
    body = (
        b'--b\r\nContent-Disposition: form-data; name="UpdateFile"; filename="a b.uxz"\r\n\r\n'
        + IMAGE + b"\r\n--b--\r\n"
    )  # fmt: skip
    headers = {**client.headers, "content-type": "multipart/form-data; boundary=b"}
    answer = client.service.handle("POST", "/mfwupdate", {}, headers, body)

    assert answer.status == 500
    assert b"InternalError" in answer.body


def test_only_lenovo_lists_the_claim() -> None:
    listed = {vendor: BUSY in Client(vendor=vendor).get(UPDATE) for vendor in VENDORS}

    assert listed == {vendor: vendor == "lenovo" for vendor in VENDORS}
