"""`provisioner bmc boot-options`: DHCP options, script and digests for a site's own servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program import Done, run

MANIFEST = {
    "cmdline": "ipa-api-url=https://10.0.0.2:6385 console=ttyS0",
    "files": {
        kind: {"name": name, "sha256": str(number) * 64, "size_bytes": 1000 + number}
        for number, (kind, name) in enumerate(
            {"kernel": "m.vmlinuz", "initramfs": "m.initrd", "iso": "m.iso"}.items()
        )
    },
}


def ask(place: Path, manifest: Any = MANIFEST, *more: str) -> Done:
    (place / "m.json").write_text(json.dumps(manifest))
    options = ["--manifest", "m.json", "--url", "http://10.0.0.1/boot", "--tftp", "10.0.0.3"]
    return run(["bmc", "boot-options", *options, *more], place)


def test_pxe_gets_ipxe_and_ipxe_gets_the_kernel_of_the_manifest(tmp_path: Path) -> None:
    shown = json.loads(ask(tmp_path, MANIFEST, "--json").stdout)

    lines = shown["dnsmasq"].splitlines()
    assert "dhcp-match=set:pxe7,option:client-arch,7" in lines
    assert "dhcp-boot=tag:pxe7,tag:!ipxe,snponly.efi,,10.0.0.3" in lines
    assert "dhcp-boot=tag:ipxe,http://10.0.0.1/boot/maintenance.ipxe" in lines
    assert shown["script"].splitlines() == [
        "#!ipxe",
        f"kernel http://10.0.0.1/boot/m.vmlinuz initrd=m.initrd {MANIFEST['cmdline']}",
        "initrd --name m.initrd http://10.0.0.1/boot/m.initrd",
        "boot",
    ]


def test_http_clients_get_the_bootable_image_and_their_vendor_class_back(tmp_path: Path) -> None:
    """source: UEFI 2.10, section 24.7: option 60 of the offer is HTTPClient."""
    shown = json.loads(ask(tmp_path, MANIFEST, "--json").stdout)

    assert "dhcp-option-force=tag:http16,60,HTTPClient" in shown["dnsmasq"].splitlines()
    (kea,) = [c for c in shown["kea"]["client-classes"] if c["name"] == "maintenance-http-16"]
    assert kea["test"] == "option[93].hex == 0x0010"
    assert kea["boot-file-name"] == "http://10.0.0.1/boot/m.iso"
    assert kea["option-data"][0]["data"] == "HTTPClient"


def test_digests_and_settings_are_printed_for_people(tmp_path: Path) -> None:
    done = ask(tmp_path)

    assert done.returncode == 0
    assert f"{'1' * 64}  m.initrd" in done.stdout
    assert "maintenance_boot: pxe" in done.stdout
    assert "agent_lookup_trusts: first" in done.stdout


@pytest.mark.parametrize(
    ("manifest", "named"),
    [
        ({"cmdline": "a"}, "files"),
        (MANIFEST | {"cmdline": "a\nboot"}, "cmdline"),
        (
            MANIFEST
            | {
                "files": MANIFEST["files"] | {"iso": MANIFEST["files"]["kernel"] | {"name": "../x"}}
            },  # type: ignore[operator,index]
            "files.iso",
        ),
        ([], "not"),
    ],
)
def test_a_wrong_manifest_is_one_line_and_exit_code_two(
    manifest: Any, named: str, tmp_path: Path
) -> None:
    done = ask(tmp_path, manifest)

    assert done.returncode == 2
    assert named in done.stderr or "object" in done.stderr
    assert "Traceback" not in done.stderr
