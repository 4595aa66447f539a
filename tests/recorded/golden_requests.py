"""The requests of each action on each reduced tree: `python tests/recorded/golden_requests.py`
writes them anew, for a person to read against the sources of docs/hardware-writes.md.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from tree_transport import TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport, StandingClock
from provisioner.integrations.recordings.bmc_commands import Request, as_object, carry_out
from provisioner.ports import BmcAddress, Secret

HERE = Path(__file__).parent
TREES = sorted(path.stem for path in (HERE / "writes").glob("*.json"))
IMAGE = "http://192.0.2.9:8080/maintenance.iso"
USER = {"dgx_h100": "admin"}
PUSHES = {
    "dell_idrac9": ("host.bios", "host.bmc", "host.cpld", "hgx.bundle"),
    "hpe_ilo5": ("host.bios", "host.bmc", "hgx.bundle"),
    "lenovo_xcc": ("host.bios", "host.bmc", "hgx.bundle"),
    "supermicro_x13": ("host.bios", "host.bmc", "host.psu/PowerSupply1", "hgx.bundle"),
    "dgx_h100": ("host.bios", "host.bmc", "host.erot/BIOS_0", "host.psu/PSU_0", "hgx.bundle"),
    "gb200": ("host.bios", "host.bmc", "host.erot", "hgx.bundle"),
    "bluefield3": ("bluefield.bmc", "bluefield.bundle"),
}
FILES = {"dell_idrac9": "BIOS_R750_1.9.2.EXE", "lenovo_xcc": "lnvgy fw uefi.uxz"}


def read_tree(name: str) -> dict[str, Any]:
    """Return the resources of a reduced tree by path."""
    found: dict[str, Any] = json.loads((HERE / "writes" / f"{name}.json").read_text())["tree"]
    return found


def put_supplies(tree: dict[str, Any], *healths: str) -> dict[str, Any]:
    """Add a chassis with power supplies in these states of health, which the trees do not have."""
    power = "/redfish/v1/Chassis/DGX/Power"
    supplies = [
        {"MemberId": str(n), "Status": {"State": "Enabled", "Health": health}}
        for n, health in enumerate(healths)
    ]
    chassis = {"@odata.id": power.removesuffix("/Power"), "Id": "DGX"}
    chassis |= {"@odata.type": "#Chassis.v1_14_0.Chassis", "Power": {"@odata.id": power}}
    return {
        **tree,
        chassis["@odata.id"]: chassis,
        power: {"Id": "Power", "PowerSupplies": supplies},
    }


def run_dry(tree: dict[str, Any], request: Request, user: str = "root") -> dict[str, Any]:
    """Return what the command prints for one action on a tree."""
    transport = DryRunTransport(TreeTransport(tree))
    clock = StandingClock()
    address = BmcAddress("https://bmc.example", user, Secret("x"))
    quirk = quirks.identify(tree["/redfish/v1"])
    client = Redfish(transport, address, quirk, clock.sleep)
    refused = asyncio.run(carry_out(client, clock, request))
    return as_object(transport.writes, refused)


def record(name: str, folder: Path) -> dict[str, Any]:
    """Return the requests of every action on a reduced tree."""
    package = folder / FILES.get(name, "firmware.fwpkg")
    package.write_bytes(b"firmware")
    requests = {
        "boot-maintenance": Request("boot-maintenance", image=IMAGE),
        "boot-maintenance virtual_media": Request(
            "boot-maintenance", image=IMAGE, way="virtual_media"
        ),
        "boot-maintenance http": Request("boot-maintenance", image=IMAGE, way="http"),
        "boot-maintenance http_dhcp": Request("boot-maintenance", image=IMAGE, way="http_dhcp"),
        "boot-maintenance pxe": Request("boot-maintenance", image=IMAGE, way="pxe"),
        "boot-disk": Request("boot-disk"),
        "change-password": Request("change-password"),
        "ac-cycle": Request("ac-cycle"),
        "power on": Request("power", "on"),
        "power off": Request("power", "off"),
        "power cycle": Request("power", "cycle"),
        "subscribe": Request("subscribe", destination="https://192.0.2.9:8443/events/x"),
        "enable-media": Request("enable-media"),
    } | {f"push {kind}": Request("push", kind, file=package) for kind in PUSHES[name]}
    tree, user = put_supplies(read_tree(name), "OK", "OK"), USER.get(name, "root")
    return {action: run_dry(tree, request, user) for action, request in requests.items()}


def golden_of(name: str) -> Path:
    """Return the file of a tree's recorded requests."""
    return HERE / "requests" / f"{name}.json"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for tree_name in TREES:
            golden = json.dumps(record(tree_name, Path(place)), indent=1)
            golden_of(tree_name).write_text(golden + "\n")
