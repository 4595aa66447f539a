"""`provisioner bmc boot-options`: what a site's own DHCP, TFTP and HTTP servers need.

With `maintenance_boot: pxe` a host boots the file that the site's DHCP server names. UEFI firmware
that boots by PXE gets iPXE by TFTP, and iPXE gets a script that loads the kernel and ramdisk of the
maintenance image by HTTP; firmware that boots by HTTP gets the bootable image itself.

source: RFC 4578 and IANA's list of processor architecture types (option 93: 7 and 9 x64 UEFI, 11
AArch64 UEFI, 16 and 19 the same by HTTP); UEFI 2.10, section 24.7 (HTTPClient in option 60, a URL
in option 67); ipxe.org, "Chainloading iPXE" (user class iPXE in option 77).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from provisioner.cli.options.checked_options import check_artifact_url
from provisioner.model.input_error import InputError

BYTES_MAX = 4 * 1024 * 1024  # of a manifest; one has some 100 KB
SCRIPT = "maintenance.ipxe"
BINARIES = {7: "snponly.efi", 9: "snponly.efi", 11: "snponly-arm64.efi"}
HTTP_TYPES = (16, 19)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class BootFile(BaseModel):
    """A file of the image, as its manifest pins it."""

    name: str
    sha256: str
    size_bytes: int


class BootManifest(BaseModel):
    """The part of an image's manifest that a network boot needs."""

    cmdline: str
    files: dict[str, BootFile]


def print_boot_options(
    manifest: Annotated[Path, typer.Option(help="Manifest beside the built maintenance image.")],
    url: Annotated[str, typer.Option(help="http://SERVER/PATH of a server that has its files.")],
    tftp: Annotated[str, typer.Option(help="The TFTP server that has iPXE.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the DHCP options and files that a network boot of the maintenance image needs.

    Example: provisioner bmc boot-options --manifest image.json --url http://10.0.0.1/boot
    --tftp 10.0.0.1
    """
    pinned = read_boot_manifest(manifest)
    if not _HOST.fullmatch(tftp):
        raise InputError("--tftp", tftp[:80], "not a host name or address", "Write 10.0.0.1.")
    options = build_options(pinned, check_artifact_url(url), tftp)
    if as_json:
        typer.echo(json.dumps(options))
        return
    typer.echo(f"# dnsmasq\n{options['dnsmasq']}")
    typer.echo(f"# Kea (Dhcp4)\n{json.dumps(options['kea'], indent=2)}\n")
    typer.echo(f"# {url}/{SCRIPT}\n{options['script']}")
    typer.echo("# files of the server; check them with sha256sum -c")
    for file in options["files"]:
        typer.echo(f"{file['sha256']}  {file['name']}")
    typer.echo("\n# settings of the daemon")
    typer.echo("\n".join(f"{name}: {value}" for name, value in options["settings"].items()))


def read_boot_manifest(path: Path) -> BootManifest:
    """Return the part of a manifest that is needed. Raises InputError that names the field."""
    remedy = "Give the JSON file that `make image` writes beside the image."
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise InputError("--manifest", str(path), problem, remedy) from None
    if len(raw) > BYTES_MAX:
        raise InputError("--manifest", str(path), f"larger than {BYTES_MAX} bytes", remedy)
    try:
        manifest = BootManifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError("--manifest", where, first["msg"], remedy) from None
    for kind in ("kernel", "initramfs", "iso"):
        if kind not in manifest.files or not _FILE.fullmatch(manifest.files[kind].name):
            raise InputError("--manifest", f"files.{kind}", "no such file is named", remedy)
    if "\n" in manifest.cmdline or "\r" in manifest.cmdline:
        raise InputError("--manifest", "cmdline", "it has several lines", remedy)
    return manifest


def build_options(manifest: BootManifest, url: str, tftp: str) -> dict[str, Any]:
    """Return the options for DHCP servers, the script for iPXE, the files and the settings."""
    script = f"{url}/{SCRIPT}"
    image = f"{url}/{manifest.files['iso'].name}"
    files = [manifest.files[kind] for kind in ("kernel", "initramfs", "iso")]
    return {
        "dnsmasq": _build_dnsmasq(script, image, tftp),
        "kea": {"client-classes": _build_kea_classes(script, image, tftp)},
        "script": _build_script(manifest, url),
        "files": [file.model_dump() for file in files],
        "settings": {"maintenance_boot": "pxe", "agent_lookup_trusts": "first"},
    }


def _build_dnsmasq(script: str, image: str, tftp: str) -> str:
    lines = ["dhcp-userclass=set:ipxe,iPXE", f"dhcp-boot=tag:ipxe,{script}"]
    for number, binary in BINARIES.items():
        lines.append(f"dhcp-match=set:pxe{number},option:client-arch,{number}")
        lines.append(f"dhcp-boot=tag:pxe{number},tag:!ipxe,{binary},,{tftp}")
    for number in HTTP_TYPES:
        lines.append(f"dhcp-match=set:http{number},option:client-arch,{number}")
        lines.append(f"dhcp-option-force=tag:http{number},60,HTTPClient")
        lines.append(f"dhcp-boot=tag:http{number},{image}")
    return "\n".join(lines) + "\n"


def _build_kea_classes(script: str, image: str, tftp: str) -> list[dict[str, Any]]:
    """Return Kea's classes; a client takes the fields of the first class that fits."""
    classes: list[dict[str, Any]] = [
        {
            "name": "maintenance-ipxe",
            "test": "option[77].text == 'iPXE'",
            "boot-file-name": script,
        }
    ]
    classes += [
        {
            "name": f"maintenance-pxe-{number}",
            "test": f"option[93].hex == 0x{number:04x} and not member('maintenance-ipxe')",
            "next-server": tftp,
            "boot-file-name": binary,
        }
        for number, binary in BINARIES.items()
    ]
    classes += [
        {
            "name": f"maintenance-http-{number}",
            "test": f"option[93].hex == 0x{number:04x}",
            "boot-file-name": image,
            "option-data": [
                {"name": "vendor-class-identifier", "data": "HTTPClient", "always-send": True}
            ],
        }
        for number in HTTP_TYPES
    ]
    return classes


def _build_script(manifest: BootManifest, url: str) -> str:
    kernel = manifest.files["kernel"].name
    ramdisk = manifest.files["initramfs"].name
    return (
        "#!ipxe\n"
        f"kernel {url}/{kernel} initrd={ramdisk} {manifest.cmdline}\n"
        f"initrd --name {ramdisk} {url}/{ramdisk}\n"
        "boot\n"
    )
