"""The requests of a node's plan through the API: read for real, never sent, without secrets."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from served import NOW, Served, run

from provisioner import components
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release
from provisioner.planning.path.planner import PlanCache
from provisioner.ports import BmcAddress, Call, Reply, Secret
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.rows import evidence_rows

TREE = Path(__file__).parents[1] / "recorded" / "writes" / "dgx_h100.json"
PATH = "/nodes/su0-n04/plan/requests"


class TreeTransport:
    """Answers reads of one BMC from a recorded tree, and stores every other request."""

    def __init__(self) -> None:
        self.tree = json.loads(TREE.read_text())["tree"]
        self.others: list[str] = []

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method != "GET":
            self.others.append(call.path)
            return Reply(405, {}, b"")
        found = self.tree.get(call.path.split("?")[0])
        return Reply(404 if found is None else 200, {}, json.dumps(found).encode())

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return ""

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return None

    async def forget(self, bmc: BmcAddress) -> None:
        return None

    async def close(self) -> None:
        return None


async def with_plan(served: Served) -> TreeTransport:
    """Give n04 an older BIOS than its pin, a login of its BMC, and a BMC that answers."""
    transport = TreeTransport()
    edge = Edge(
        from_versions=("01.01.03",),
        to="01.05.03",
        activates_by=Activation.COLD_BOOT,
        artifact="bios.fwpkg",
        sha256="0" * 64,
        evidence="notes",
    )
    profile = Profile(match=Match(), pins={"host.bios": Pin(version="01.05.03")})
    node = await served.store.nodes.get("su0-n04")
    assert node is not None
    release = Release(profiles={node.profile: profile})
    matrix = Matrix(releases={node.release: release}, edges={"host.bios": (edge,)})
    vault = Vault(served.store, MasterKey.generate())
    await vault.put("su0-n04/host", "admin", Secret("hidden-word"))
    for name, value in {
        "transport": transport,
        "vault": vault,
        "matrix": matrix,
        "plans": PlanCache(matrix, components.ALL, production=True),
    }.items():
        object.__setattr__(served.parts, name, value)
    bios = Component(
        kind="host.bios", slot="HostBIOS_0", version="01.01.03", source="/x", bmc="host"
    )
    seen = Inventory(node="su0-n04", vendor="ami_megarac", components=(bios,))
    await served.store.write(partial(evidence_rows.put_inventory, inventory=seen, now=NOW))
    return transport


def test_an_operator_sees_each_request_and_the_bmc_is_only_read() -> None:
    async def scenario(served: Served) -> None:
        transport = await with_plan(served)

        status, shown = await served.ask("operator", "GET", PATH)

        assert status == 200, shown
        assert [w["path"].rpartition("/")[2] for w in shown["writes"]] == [
            "upload",
            "ComputerSystem.Reset",
            "ComputerSystem.Reset",
        ]
        assert [step["title"].split()[0] for step in shown["steps"]] == ["host.bios", "cold_boot"]
        assert shown["refused"] is None
        assert transport.others == []
        assert "hidden-word" not in json.dumps(shown)

    run(scenario)


def test_a_bmc_without_a_credential_is_a_refusal_that_names_it() -> None:
    async def scenario(served: Served) -> None:
        await with_plan(served)
        assert served.parts.vault is not None
        await served.parts.vault.remove("su0-n04/host")

        status, shown = await served.ask("operator", "GET", PATH)

        assert (status, shown["refused"]["reason"]) == (200, "login_refused")
        assert shown["writes"] == []

    run(scenario)


def test_a_process_that_reaches_no_bmc_says_so() -> None:
    async def scenario(served: Served) -> None:
        status, _ = await served.ask("operator", "GET", PATH)

        assert status == 409

    run(scenario)
