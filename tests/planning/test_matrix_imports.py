"""Makers' files become a draft of an overlay: each trap of their formats is one test."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from pathlib import Path

import pytest
from drafting import HERE, RELEASE, SHA, apply, draft, read, verdicts
from import_files import (
    HGX_RECORDS,
    HGX_VERSION,
    boot_stream,
    catalog,
    catalog_entry,
    firmware_object,
    pldm_package,
)

from provisioner.model.input_error import InputError

SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", "../shared/samples"))
SHOW_VERSION = SAMPLES / "nvfwupd" / "show_version_DGX_H100_241205.json"


def refused(name: str, content: bytes) -> str:
    with pytest.raises(InputError) as error:
        read(name, content)
    return str(error.value)


# packages


@pytest.mark.parametrize("revision", [1, 2, 3, 4])
def test_a_package_of_each_format_gives_its_version_and_its_parts(revision: int):
    got = read("a.fwpkg", pldm_package(revision=revision))

    assert [(s.kind, s.version, s.file, s.sha256) for s in got.statements] == [
        ("hgx.bundle", HGX_VERSION, "a.fwpkg", SHA)
    ]
    assert {p.kind: p.version for p in got.contents[0].parts} == {
        "hgx.erot": "00.02.0134.0000_n00",
        "hgx.bmc": "HGX-22.10-1-rc36",
        "hgx.fpga": "2.11",
        "hgx.gpu": "96.00.68.00.01",
        "hgx.nvswitch": "96.10.38.00.01",
        "hgx.pcieswitch": "1.7.5F",
        "hgx.retimer": "1.31.8",
    }


def test_the_contents_of_a_shipped_package_are_the_shipped_ones():
    shipped = (Path(__file__).parents[2] / "firmware_matrix.yaml").read_text()

    drafted = draft(read("a.fwpkg", pldm_package()), matrix=shipped)

    assert ("same", HGX_VERSION) in [(c.verdict, c.after) for c in drafted.changes]
    assert "bundles:" not in drafted.text


def test_a_package_closes_the_pin_of_the_named_profile_and_brings_its_contents():
    drafted = draft(read("a.fwpkg", pldm_package()), place=HERE)
    matrix = apply(drafted)
    pin = matrix.releases[RELEASE].profiles["h100"].pins["hgx.bundle"]

    assert (pin.version, pin.artifact, pin.sha256) == (HGX_VERSION, "a.fwpkg", SHA)
    assert matrix.bundles["hgx.bundle"][HGX_VERSION]["hgx.fpga"] == "2.11"


def test_a_package_for_two_gpus_of_different_versions_writes_no_contents():
    both = (*HGX_RECORDS, ("ERoT,GPU:GH200:", ("00.02.0134.0000_n00", "96.00.68.00.02")))

    drafted = draft(read("a.fwpkg", pldm_package(records=both)), place=HERE)

    assert ("conflict", "hgx.bundle") in verdicts(drafted)
    assert apply(drafted).bundles == {}


def test_a_part_without_a_kind_keeps_the_contents_out_until_a_person_names_it():
    records = (*HGX_RECORDS, ("Mystery:X:", ("7",)))

    unnamed = draft(read("a.fwpkg", pldm_package(records=records)), place=HERE)
    named = draft(read("a.fwpkg", pldm_package(records=records), Mystery="hgx.cpld"), place=HERE)

    assert "bundles:" not in unnamed.text
    assert apply(named).bundles["hgx.bundle"][HGX_VERSION]["hgx.cpld"] == "7"


@pytest.mark.parametrize(
    ("device", "version", "kind"),
    [(0x1021, "28.43.2026", "nic.cx7"), (0x1023, "40.47.1026", "nic.cx8")],
)
def test_a_network_cards_package_is_known_by_its_pci_id(device: int, version: str, kind: str):
    got = read("nic.fwpkg", pldm_package("nic", (("CX", (version,)),), pci_device=device))

    assert [(s.kind, s.version, s.file) for s in got.statements] == [(kind, version, "nic.fwpkg")]


def test_a_package_cut_off_anywhere_or_changed_anywhere_is_refused():
    whole = pldm_package()
    header = whole[: -len(b"images")]

    for size in range(17, len(header)):
        assert "Fetch the package again" in refused("a.fwpkg", header[:size])
    for at in range(17, len(header)):
        changed = bytearray(header)
        changed[at] ^= 0x40
        assert "Fetch the package again" in refused("a.fwpkg", bytes(changed))


def test_lengths_that_lie_under_a_right_checksum_are_refused_or_harmless():
    header = pldm_package()[: -len(b"images")]
    for at in range(19, len(header) - 4):
        body = bytearray(header[:-4])
        body[at] = 0xFF
        with contextlib.suppress(InputError):
            read("a.fwpkg", bytes(body) + zlib.crc32(body).to_bytes(4, "little"))


# boot streams


def test_a_boot_stream_gives_its_release_by_name_and_its_list_by_content():
    stream = boot_stream([("BF3_NIC_FW", "32.47.1088"), ("BF2_NIC_FW", "24.47.1088")])

    got = read("bf-bundle-3.2.1-42_25.11_ubuntu-24.04_prod.bfb", stream)

    assert [(s.kind, s.version) for s in got.statements] == [
        ("bluefield.bundle", "3.2.1-42_25.11"),
        ("", "24.47.1088"),
        ("bluefield.nic", "32.47.1088"),
    ]


def test_a_boot_stream_fills_the_file_of_the_pin_that_has_its_version():
    got = read("bf-bundle-3.2.1-42_25.11_ubuntu-24.04_prod.bfb", boot_stream())

    drafted = draft(got)
    pins = apply(drafted).releases[RELEASE].profiles

    assert [c.verdict for c in drafted.changes] == ["file", "same"]  # h200 follows h100
    assert {p.pins["bluefield.bundle"].sha256 for p in pins.values()} == {SHA}
    assert pins["h100"].pins["bluefield.bundle"].evidence == "published"


def test_a_renamed_boot_stream_has_no_release():
    got = read("image.bfb", boot_stream())

    assert got.statements == ()
    assert got.notes == ("the file name has no release: give it the name that NVIDIA gave it",)


def test_a_damaged_boot_stream_is_refused():
    stream = boot_stream([("BF3_NIC_FW", "32.47.1088")])

    assert "cut off" in refused("x.bfb", stream[:-8])
    assert "no image header" in refused("x.bfb", stream + b"junk")
    assert "damaged" in refused("x.bfb", stream[:24] + b"Y" + stream[25:])


# Dell's catalogue


def test_a_catalogue_gives_the_idracs_packages_of_one_model():
    entries = (
        catalog_entry("F1/BIOS_1.EXE", "2.1.3", sha256=SHA.upper()),
        catalog_entry("F2/BIOS_1.BIN", "2.1.3", package="LLXP"),
        catalog_entry("F3/OTHER.EXE", "9.9.9", model="R750"),
        catalog_entry("F4/iDRAC.EXE", "7.30.10.50", kind="FRMW", name="iDRAC with Lifecycle"),
    )
    for name, content in (
        ("Catalog.xml", catalog(*entries)),
        ("Catalog.xml.gz", gzip.compress(catalog(*entries))),
    ):
        got = read(name, content)

        assert [(s.kind, s.version, s.file, s.sha256) for s in got.statements] == [
            ("host.bios", "2.1.3", "BIOS_1.EXE", SHA),
            ("host.bmc", "7.30.10.50", "iDRAC.EXE", ""),
        ]
        assert "1 packages are not for the iDRAC (no LW64)" in got.notes


def test_an_md5_is_no_digest():
    got = read("Catalog.xml", catalog(catalog_entry("F/B.EXE", "1.0")))

    assert got.statements[0].sha256 == ""
    assert got.notes == ("B.EXE: no SHA-256 (Dell's MD5 is no proof)",)


def test_the_newest_of_several_versions_is_offered():
    old = catalog_entry("F/A.EXE", "2.9.0", date="2025-01-01T00:00:00Z")
    new = catalog_entry("F/B.EXE", "2.10.0", date="2026-01-01T00:00:00Z")

    for entries in ((old, new), (new, old)):
        assert [s.version for s in read("Catalog.xml", catalog(*entries)).statements] == ["2.10.0"]


def test_a_catalogue_with_entities_is_refused_unread():
    bomb = '<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    outside = '<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    for declared in (bomb, outside):
        xml = f"{declared}<Manifest>{catalog_entry('F/A.EXE', '&b;')}</Manifest>".encode()

        assert "document type" in refused("Catalog.xml", xml)


def test_a_compressed_catalogue_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "provisioner.integrations.published_versions.deciding.json_documents.SIZE_MAX", 1000
    )

    assert "larger than" in refused("Catalog.xml.gz", gzip.compress(b"<a>" + b" " * 5000))
    assert "cut off" in refused("Catalog.xml.gz", gzip.compress(b"<Manifest/>")[:-4])


# tables


def test_a_table_gives_versions_as_they_are_written():
    rows = "Component,Version,Profile,Evidence\nBlueField-3,2.10,h100,page of 2026-01\n"
    got = read("notes.csv", ("\ufeff" + rows.replace("BlueField-3", "host.doca")).encode())

    statement = got.statements[0]
    assert (statement.kind, statement.version, statement.profile) == ("host.doca", "2.10", "h100")
    assert statement.evidence == "page of 2026-01"


def test_a_version_that_a_spreadsheet_made_a_number_is_refused():
    assert "spreadsheet" in refused("n.csv", b"component,version\nhost.bios,2.51E+05\n")


@pytest.mark.parametrize("word", ["N/A", "-", "", "TBD", "unknown", "null", "~"])
def test_a_word_for_no_version_is_no_version(word: str):
    got = read("n.csv", f"component;version\nhost.bios;{word}\n".encode())

    assert got.statements == ()
    assert got.notes == ("host.bios: the table has no version",)


def test_the_train_of_a_card_goes_before_the_name_of_its_row():
    # NVIDIA's table of GB300 writes "CX7" beside ConnectX-8 firmware
    got = read("n.csv", b"component,version\nCX7,40.47.1026\nCX7,28.46.3048\nBF3,32.46.3048\n")

    assert [s.kind for s in got.statements] == ["nic.cx8", "nic.cx7", "bluefield.nic"]


def test_two_versions_of_one_component_are_a_conflict_and_not_written():
    got = read("n.csv", b"component,version\nhost.bios,1.0\nhost.bios,1.1\n")

    assert verdicts(draft(got, place=HERE)) == [("conflict", "host.bios")]


def test_two_spellings_of_one_version_are_no_conflict():
    got = read("n.csv", b"component,version\nnic.cx7,28.43.2026\nnic.cx7,28.43.20.26\n")

    assert verdicts(draft(got)) == [("same", "nic.cx7")] * 2


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n",
        b"component,version,version\nx,1,2\n",
        b"component,version\nx,1,2,3\n",
        b"component,version\n\xff,1\n",
        b'component,version\n"x,1\n',
        b"component,version\nx,1\x1b[31m\n",
        b"component,version\n" + b"x" * 300 + b",1\n",
        b"component,version,sha256\nx,1,abc\n",
        b"component,version\n" + b"x,1\n" * 5001,
    ],
)
def test_a_table_that_is_none_is_refused_with_its_place(content: bytes):
    assert refused("n.csv", content).startswith("n.csv")


# NVIDIA's JSON


BMC = {
    "Component": "BMC+FPGA+EROT",
    "Type": "Prod",
    "Locations": [
        {"Location": "https://h/fw/a.fwpkg?t=1", "Type": "Firmware", "Sha256": SHA.upper()},
        {"Location": "https://h/fw/recovery.fwpkg", "Type": "Firmware-Recovery"},
        {"Location": "https://h/fw/cert.crt", "Type": "Certificate"},
    ],
    "SubComponents": [{"Component": "BMC", "Version": "GB200Nvl-25.08-9"}],
}


def test_a_firmware_object_gives_the_payload_and_no_recovery_image():
    got = read("o.json", firmware_object(BMC))

    assert [tuple(s[:5]) for s in got.statements] == [
        ("BMC", "GB200Nvl-25.08-9", "host.bmc", "a.fwpkg", SHA)
    ]


def test_the_bmc_of_a_switch_tray_is_no_hosts_bmc():
    got = read("o.json", firmware_object(BMC, sku_type="Switch Tray"))

    assert got.statements == ()
    assert got.notes == ("BoardSKUs[0] is a Switch Tray: not a compute tray",)


def test_firmware_of_another_channel_is_left_out():
    got = read("o.json", firmware_object({**BMC, "Type": "Beta"}))

    assert got.statements == ()
    assert got.notes == ("BMC+FPGA+EROT: channel Beta is not Prod",)


def test_two_payloads_give_no_file():
    twice = {**BMC, "Locations": [{"Location": "/a"}, {"Location": "/b"}]}

    got = read("o.json", firmware_object(twice))

    assert (got.statements[0].file, got.statements[0].sha256) == ("", "")
    assert got.notes == ("BMC+FPGA+EROT: 2 payloads, no file is taken",)


def test_an_object_of_several_milestones_is_refused():
    document = json.dumps({"Milestones": [{"BoardSKUs": []}] * 2}).encode()

    assert "2 milestones" in refused("o.json", document)


def test_the_listing_of_a_package_gives_the_same_as_the_package():
    records = [
        {
            "ComponentImageSetVersionString": name,
            "Components": [{"ComponentVersionString": v} for v in versions],
        }
        for name, versions in HGX_RECORDS
    ]
    listing = {
        "PackageHeaderInformation": {"PackageVersionString": HGX_VERSION, "PackageSHA256": SHA},
        "FirmwareDeviceRecords": records,
    }

    got = read("listing.json", json.dumps(listing).encode())

    assert got.contents == read("a.fwpkg", pldm_package()).contents
    assert got.statements[0].sha256 == SHA


def test_the_version_of_a_node_is_not_the_version_of_the_package():
    devices = [
        {"AP Name": "HostBMC_0", "Sys Version": "24.9.17", "Pkg Version": "24.09.18",
         "Up-To-Date": "No"},
        {"AP Name": "CX7_0", "Sys Version": "28.42.1000", "Pkg Version": "N/A",
         "Up-To-Date": "No"},
    ]  # fmt: skip
    document = {"Packages": ["DGX_0003_241205.1.0_custom"], "Firmware Devices": devices}

    got = read("show.json", json.dumps(document).encode())

    assert [(s.kind, s.version) for s in got.statements] == [("host.bmc", "24.09.18")]
    assert got.notes == ("1 parts of the node are not in the package",)


@pytest.mark.skipif(
    not SHOW_VERSION.exists(), reason=f"{SHOW_VERSION} is not here: set PROVISIONER_SAMPLES"
)
def test_nvidias_own_example_gives_package_versions_alone():
    content = SHOW_VERSION.read_bytes()
    devices = json.loads(content)["Firmware Devices"]
    stated = {d["Pkg Version"] for d in devices} - {"N/A"}

    got = read("show.json", content)

    assert {s.version for s in got.statements} == stated
    assert len(got.statements) == sum(d["Pkg Version"] != "N/A" for d in devices)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"{}", b"[" * 100_000, b'{"Milestones": 1}', b'{"Milestones": [1]}',
     b'{"FirmwareDeviceRecords": []}', b'{"Firmware Devices": [], "Packages": []}'],
)  # fmt: skip
def test_a_document_that_is_none_is_refused(content: bytes):
    assert refused("o.json", content).startswith("o.json")


def test_a_file_of_no_format_is_refused():
    assert "format" in refused("readme.bin", b"hello")
    assert "unprintable" in refused("a\nb.csv", b"component,version\n")
