"""The rails' file in Debian's real netplan: what systemd-networkd is given for each rail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_rails_frr import RAILS, inventory, leaf_end, mac, node

from provisioner.model.inventory import Device, DeviceKind
from provisioner.model.location import Bond, Port
from provisioner.planning.certification.host_settings import (
    list_rail_links,
    write_bonds,
    write_netplan,
)
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
    legs = tuple(
        Port(
            switch=f"front{leg}", interface="vlan5", rail=-1, nic_slot=f"FRONT_{leg}",
            address="10.9.0.1/31", bond=Bond(name="bond1", members=("swp1",), mlag=5, made=True),
        )
        for leg in (0, 1)
    )  # fmt: skip
    cards = tuple(
        Device(kind=DeviceKind.NIC, slot=f"FRONT_{leg}", mac=f"00:00:00:00:01:0{leg}")
        for leg in (0, 1)
    )
    bonded = write_bonds(
        node(0).model_copy(update={"ports": legs}),
        inventory(0).model_copy(update={"devices": cards}),
    )
    network = {"version": 2, **bonded}
    network["ethernets"] = write_netplan(links) | bonded["ethernets"]
    document = {"network": network}
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
    device = read_unit((root / "run/systemd/network/10-netplan-front0.netdev").read_text())
    assert {("NetDev", "Kind=bond"), ("Bond", "Mode=802.3ad")} <= set(device)
    assert ("Bond", "LACPTransmitRate=fast") in device
    bond = read_unit((root / "run/systemd/network/10-netplan-front0.network").read_text())
    assert {("Network", "Address=10.9.0.0/31"), ("RoutingPolicyRule", "Table=180")} <= set(bond)
    for leg in "ab":
        card = read_unit((root / f"run/systemd/network/10-netplan-front0{leg}.network").read_text())
        assert ("Network", "Bond=front0") in card
