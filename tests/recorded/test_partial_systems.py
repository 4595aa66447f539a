"""The system of a host and its parts, while its BMC lists some of them only."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
import virtual_time
from golden_requests import read_tree
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.observe.inband import shows_tpm
from provisioner.execution.steps import methods_redfish
from provisioner.model.node import Node, NodeKind
from provisioner.model.plan import Step
from provisioner.ports import BmcAddress, Call, Reply, Unreachable
from provisioner.quirks import Quirk
from provisioner.settings import Settings

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


def test_a_bmc_that_lists_a_part_of_its_systems_denies_no_tpm() -> None:
    client = client_of(TreeTransport(with_baseboard("HGX_Baseboard_0", counted=2)))

    with pytest.raises(Unreachable, match="2 members are counted"):
        asyncio.run(shows_tpm(client))


class Card(TreeTransport):
    """A BlueField whose system is in these states of its boot, one reading after the other."""

    def __init__(self, tree: dict[str, Any], states: list[str | None]) -> None:
        super().__init__(tree)
        self.states = states

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        reply = await super().request(bmc, call)
        if not call.path.endswith("/Systems/Bluefield"):
            return reply
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        body = json.loads(reply.body) | {"BootProgress": {"OemLastState": state}}
        return Reply(200, {}, json.dumps(body).encode())


@pytest.mark.parametrize(("between", "is_proved"), [("BL2", True), (None, False)])
def test_a_boot_that_is_not_shown_is_no_installer_that_ran(
    between: str | None, is_proved: bool
) -> None:
    """The same bundle ran before: a progress that a BMC leaves out for once proves nothing."""
    tree = read_tree("bluefield3")
    bundle = tree[f"{V1}/UpdateService/FirmwareInventory/DPU_OS"]["Version"]
    running = "OsIsRunning"
    card = Card(tree, [running, running, between, between, running])
    step = Step.model_construct(
        component="bluefield.bundle", from_version=bundle, to_version=bundle
    )
    site: Any = SimpleNamespace(clock=virtual_time.VirtualClock(), settings=Settings(site="s"))
    node = Node(id="n", kind=NodeKind.HOST)
    client = Redfish(card, ADDRESS, quirks.identify(tree[V1]))

    told = virtual_time.run(methods_redfish._installed(site, node, step, client, "DPU_0"))

    assert (told is None) is is_proved
    assert told is None or "not installed" in told.detail
