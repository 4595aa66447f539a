"""The rails' file in Debian's real netplan: what systemd-networkd is given for each rail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_rails_frr import RAILS, inventory, leaf_end, mac, node

from provisioner.planning.certification.host_settings import list_rail_links, write_netplan
from provisioner.settings import Settings

PACKAGES = "base-files,netplan.io,bash,dash,coreutils,systemd"


def read_unit(text: str) -> list[tuple[str, str]]:
    """Return (section, line) of a systemd unit."""
    section = ""
    rows = []
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            rows.append((section, line))
    return rows


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mmdebstrap") is None,
    reason="needs root and mmdebstrap: apt install mmdebstrap",
)
@pytest.mark.parametrize(
    ("suite", "program"),  # netplan 0.106 and 1.1
    [("bookworm", "/lib/netplan/generate"), ("trixie", "/usr/libexec/netplan/generate")],
)
def test_netplan_writes_each_rail_with_its_frames_routes_and_rule(
    tmp_path: Path, suite: str, program: str
) -> None:
    root = tmp_path / "root"
    made = subprocess.run(
        ["mmdebstrap", "--variant=extract", f"--include={PACKAGES}", suite, str(root),
         "http://deb.debian.org/debian"],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no network to Debian's mirror here")
    links = list_rail_links(node(0), inventory(0), Settings())
    document = {"network": {"version": 2, "ethernets": write_netplan(links)}}
    file = root / "etc/netplan/70-provisioner-rails.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))  # as the module host_rails writes it
    file.chmod(0o600)

    ran = subprocess.run(
        ["chroot", str(root), program], capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    for rail, link in zip(RAILS, links, strict=True):
        unit = (root / f"run/systemd/network/10-netplan-rail{rail}.network").read_text()
        rows = read_unit(unit)
        assert ("Match", f"PermanentMACAddress={mac(0, rail)}") in rows
        assert ("Link", "MTUBytes=9216") in rows
        assert ("Network", f"Address={link.address}") in rows
        assert ("Route", f"Gateway={leaf_end(0, rail)}") in rows
        assert ("Route", f"Table={link.table}") in rows
        assert [row for row in rows if row[0] == "RoutingPolicyRule"] == [
            ("RoutingPolicyRule", f"From={link.address.partition('/')[0]}"),
            ("RoutingPolicyRule", f"Table={link.table}"),
            ("RoutingPolicyRule", f"Priority={link.priority}"),
        ]
