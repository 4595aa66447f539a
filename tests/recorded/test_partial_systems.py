"""The system of a host and its parts, while its BMC lists some of them only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import virtual_time
from tree_transport import ADDRESS, TreeTransport

from provisioner.adapters.redfish.client import Redfish
from provisioner.ports import Unreachable
from provisioner.quirks import Quirk

V1 = "/redfish/v1"
SYSTEM = f"{V1}/Systems/1"


def client_of(bmc: TreeTransport) -> Redfish:
    return Redfish(bmc, ADDRESS, Quirk(name="x", title="x"))


BASEBOARD = f"{V1}/Systems/HGX_Baseboard_0"
LATER_S = 120.0  # after which what answers 404 counts as gone


def with_baseboard(*listed: str, counted: int = 0) -> dict[str, Any]:
    """A service of a host and its baseboard that lists these systems."""
    shown = {"Members": [{"@odata.id": f"{V1}/Systems/{name}"} for name in listed]}
    return {
        V1: {"Systems": {"@odata.id": f"{V1}/Systems"}},
        SYSTEM: {"@odata.id": SYSTEM, "Id": "1", "PowerState": "Off"},
        f"{V1}/Systems": {**shown, "Members@odata.count": counted or len(listed)},
        BASEBOARD: {"@odata.id": BASEBOARD, "Id": "HGX_Baseboard_0", "PowerState": "On"},
    }


def test_a_baseboard_is_not_taken_for_a_host_that_is_not_listed_yet() -> None:
    """A BMC that restarts lists what it has gathered so far; power goes to the host's system."""

    async def main() -> list[str]:
        bmc = TreeTransport(with_baseboard("HGX_Baseboard_0", counted=2))
        with pytest.raises(Unreachable, match="2 members are counted"):
            await client_of(bmc).power()
        bmc.tree = with_baseboard("1", "HGX_Baseboard_0")
        client = client_of(bmc)
        shown = [str(await client.power())]
        for listed in (("HGX_Baseboard_0",), ()):
            bmc.tree = with_baseboard(*listed)
            del bmc.tree[SYSTEM]
            for _ in range(2):
                with pytest.raises(Unreachable):
                    await client.power()
                await asyncio.sleep(LATER_S)
        bmc.tree = with_baseboard("1", "HGX_Baseboard_0")
        shown.append(str(await client.power()))
        bmc.tree = with_baseboard("HGX_Baseboard_0")
        return [*shown, str(await client_of(bmc).power())]  # a BMC of a baseboard alone

    assert virtual_time.run(main()) == ["Off", "Off", "On"]


def test_a_host_whose_bmc_lists_no_system_has_not_shown_its_drives() -> None:
    with pytest.raises(Unreachable, match="no system is listed"):
        asyncio.run(client_of(TreeTransport(with_baseboard())).drive_serials())
