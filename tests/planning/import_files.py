"""Files in the formats that `matrix refresh` reads, written from their published layouts."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence

from provisioner.integrations.published_versions.deciding.reading import IDENTIFIERS

# the versions of NVIDIA's own example (github.com/NVIDIA/fwpkg_unpack, README)
HGX_VERSION = "HGX-H100x8_0002_230517.3.0"
HGX_RECORDS = (
    ("ERoT,HMC::", ("00.02.0134.0000_n00", "HGX-22.10-1-rc36")),
    ("ERoT,FPGA::", ("00.02.0134.0000_n00", "2.11")),
    ("ERoT,GPU:GH100_HBM3-80GB-885_0200:", ("00.02.0134.0000_n00", "96.00.68.00.01")),
    ("ERoT,NVSwitch:LS10_0002_890_B00:", ("00.02.0134.0000_n00", "96.10.38.00.01")),
    ("ERoT,PCIeSwitch::", ("00.02.0134.0000_n00", "1.7.5F")),
    ("PCIeRetimer:P8:", ("1.31.8",)),
)

Record = tuple[str, Sequence[str]]


def pldm_package(
    version: str = HGX_VERSION,
    records: Sequence[Record] = HGX_RECORDS,
    *,
    revision: int = 1,
    pci_device: int | None = None,
) -> bytes:
    """A package whose header is DSP0267's and whose images are empty."""
    versions = list(dict.fromkeys(v for _, group in records for v in group))
    bits = 8 * max(1, -(-len(versions) // 8))
    body = bytes(13) + struct.pack("<H", bits) + _text(version) + bytes([len(records)])
    for set_name, group in records:
        body += _record(set_name, sum(1 << versions.index(v) for v in group), bits,
                        revision, pci_device)  # fmt: skip
    body += b"\0" if revision >= 2 else b""
    body += struct.pack("<H", len(versions))
    for number, each in enumerate(versions):
        body += struct.pack("<HHIHHII", 10, number, 0, 0, 0, 0, 0) + _text(each)
        body += struct.pack("<I", 0) if revision >= 3 else b""
    identifier = next(i for i, r in IDENTIFIERS.items() if r == revision)
    trailer = 8 if revision >= 4 else 4
    head = identifier + struct.pack("<BH", revision, 19 + len(body) + trailer) + body
    return head + struct.pack("<I", zlib.crc32(head)) + bytes(trailer - 4) + b"images"


def _record(name: str, applies: int, bits: int, revision: int, pci_device: int | None) -> bytes:
    descriptors = struct.pack("<HHI", 1, 4, 0x1647)
    if pci_device is not None:
        descriptors += struct.pack("<HHH", 0x0100, 2, pci_device)
    rest = struct.pack("<BI", 1 if pci_device is None else 2, 0)
    rest += bytes([1, len(name)]) + struct.pack("<H", 0)
    rest += struct.pack("<I", 0) if revision >= 4 else b""
    rest += applies.to_bytes(bits // 8, "little") + name.encode() + descriptors
    return struct.pack("<H", len(rest) + 2) + rest


def _text(text: str) -> bytes:
    return bytes([1, len(text)]) + text.encode()


def boot_stream(components: Sequence[tuple[str, str]] = ()) -> bytes:
    """A stream of a boot image and, where there are components, their list."""
    images = [b"\x7fELF-no-list"]
    if components:
        images.append(json.dumps({"Components": [{"Name": n, "Version": v}
                                                 for n, v in components]}).encode())  # fmt: skip
    stream = b""
    for image in images:
        padded = image + bytes(-len(image) % 8)
        word = 0x13026642 | 1 << 32 | 2 << 36 | 3 << 52
        stream += struct.pack("<QIIQ", word, len(image), zlib.crc32(padded), 0) + padded
    return stream


def catalog_entry(
    path: str, version: str, *, kind: str = "BIOS", package: str = "LW64", sha256: str = "",
    date: str = "2026-01-01T00:00:00Z", name: str = "System BIOS", model: str = "XE9680",
) -> str:  # fmt: skip
    """One package of Dell's catalogue."""
    digest = f'<Hash algorithm="SHA256">{sha256}</Hash>' if sha256 else ""
    return (
        f'<SoftwareComponent path="{path}" vendorVersion="{version}" packageType="{package}"'
        f' dateTime="{date}" hashMD5="{"0" * 32}"><Name><Display lang="en"><![CDATA[{name}]]>'
        f'</Display></Name><ComponentType value="{kind}"/><SupportedSystems><Brand>'
        f'<Model systemID="0BEE"><Display lang="en"><![CDATA[{model}]]></Display></Model></Brand>'
        f"</SupportedSystems><Cryptography>{digest}</Cryptography></SoftwareComponent>"
    )


def catalog(*entries: str) -> bytes:
    """A catalogue as Dell publishes it: UTF-16 with a mark."""
    head = '<?xml version="1.0" encoding="utf-16"?><Manifest baseLocation="downloads.dell.com">'
    return (head + "".join(entries) + "</Manifest>").encode("utf-16")


def firmware_object(*entries: dict[str, object], sku_type: str = "Compute Node") -> bytes:
    """NVIDIA's firmware object of one milestone and one board."""
    board = {"Name": "tray", "Type": sku_type, "Components": {"Firmware": list(entries)}}
    milestone = {"Name": "1.3.6", "BoardSKUs": [board]}
    return json.dumps({"ProductName": "DGXGB200", "Milestones": [milestone]}).encode()
