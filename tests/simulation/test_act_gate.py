"""The gate at the edge: it reads rows anew, and what it refuses is never sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from once_device import SETTINGS, Device, operation, statuses
from virtual_time import VirtualClock, run

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import is_stored, once, pass_gate, pass_login_gate
from provisioner.model.case import Case, Fault, Origin, Service, Stage
from provisioner.model.location import Port
from provisioner.model.node import Boots, Node, NodeKind, Placement, State, TenantData
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.ports import Secret
from provisioner.store.sql_store import SqlStore, open_store

PORT = Port(switch="leaf-1", interface="swp1", rail=0, nic_slot="", address="")
FENCED: dict[str, Any] = {
    "kind": NodeKind.HOST,
    "state": State.DRAINING,
    "placement": Placement.MAINTENANCE,
    "fenced_at": 1.0,
    "served": "red",
    "boots": Boots.NOTHING,
    "ports": (PORT,),
}


async def fenced(store: SqlStore, **more: Any) -> Hold:
    """A driver's hold on a node that its tenant gave up."""
    await store.nodes.add(Node(id="n", **{**FENCED, **more}))
    return await operation(store)


async def change(store: SqlStore, **more: Any) -> None:
    """Somebody else writes the row."""
    node = await store.nodes.get("n")
    assert node is not None
    await store.nodes.save(node.model_copy(update=more))


CHANGES: dict[str, dict[str, Any]] = {
    "a person keeps the data": {"tenant_data": TenantData.KEEP},
    "a reading asks a person": {"tenant_data": TenantData.ASKED},
    "its ports are elsewhere": {"placement": Placement.MIXED},
    "its own system runs": {"boots": Boots.SYSTEM},
}


@pytest.mark.parametrize("sentence", CHANGES)
def test_what_changed_since_the_decision_stops_the_act_at_its_edge(sentence: str) -> None:
    async def main() -> tuple[Blocker | None, Blocker | None]:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store)
        before = await pass_gate(hold, Destruction.DISKS)
        await change(store, **CHANGES[sentence])
        return before, await pass_gate(hold, Destruction.DISKS)

    before, after = run(main())

    assert before is None
    assert after is not None
    assert after.subject == "n"


def test_an_act_that_is_refused_is_settled_as_absent_and_never_sent() -> None:
    device = Device()

    async def main() -> tuple[LedgerEntry | Blocker, list[ActionStatus], LedgerEntry | Blocker]:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store, served="", tenant_data=TenantData.ASKED)
        act = replace(device.act(), destroys=Destruction.BIOS_DEFAULTS)
        refused = await once(hold, VirtualClock(), SETTINGS, act, None)
        seen = await statuses(store)
        assert device.flashes == 0
        await change(store, tenant_data=TenantData.ERASE)
        return refused, seen, await once(hold, VirtualClock(), SETTINGS, act, None)

    refused, seen, sent = run(main())

    assert isinstance(refused, Blocker)
    assert seen == [ActionStatus.ABSENT]
    assert isinstance(sent, LedgerEntry)
    assert device.flashes == 1


def test_a_harmless_act_asks_no_gate() -> None:
    device = Device()

    async def main() -> LedgerEntry | Blocker:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store, tenant_data=TenantData.ASKED)
        return await once(hold, VirtualClock(), SETTINGS, device.act(), None)

    assert isinstance(run(main()), LedgerEntry)
    assert device.flashes == 1


def cut_off(*sources: str) -> Case:
    return Case(
        id="n-c1",
        node="n",
        origin=Origin.EVENT,
        service=Service.CUT_OFF,
        reason="FatalEvent",
        faults=tuple(Fault(source=source, id="x") for source in sources),
        drain_at=5.0,
        opened_at=5.0,
    )


@pytest.mark.parametrize(
    ("sources", "reason"), [(("alert",), Reason.TRESPASS), (("alert", "xid"), None)]
)
def test_the_gate_reads_the_nodes_case(sources: tuple[str, ...], reason: Reason | None) -> None:
    async def main() -> Blocker | None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store, tenant="red")
        await store.cases.add(cut_off(*sources), notices=(), events=(), now=5.0)
        return await pass_gate(hold, Destruction.DISKS)

    refused = run(main())

    assert (refused and refused.reason) == reason


@pytest.mark.parametrize("ordered", [False, True])
def test_a_node_is_retired_by_its_case_alone(ordered: bool) -> None:
    async def main() -> Blocker | None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store, served="")
        if ordered:
            case = cut_off("alert").model_copy(update={"retire_at": 9.0, "stage": Stage.RETIRING})
            await store.cases.add(case, now=5.0)
        return await pass_gate(hold, Destruction.FORGOTTEN_LOGIN)

    assert (run(main()) is None) is ordered


def test_the_gate_reads_the_cases_of_others() -> None:
    async def main() -> Blocker | None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store, tenant="red")
        for name in ("n", "a", "b", "c"):
            if name != "n":
                await store.nodes.add(Node(id=name, **{**FENCED, "tenant": "red"}))
            case = cut_off("alert", "xid").model_copy(update={"id": f"{name}-c1", "node": name})
            await store.cases.add(case, now=5.0)
        return await pass_gate(hold, Destruction.DISKS)

    refused = run(main())

    assert refused is not None
    assert "were cut off" in refused.detail


def test_the_gate_reads_the_other_nodes_of_the_leaf() -> None:
    async def main() -> Blocker | None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store)
        for name in ("a", "b"):
            asked = {"tenant": "blue", "tenant_data": TenantData.ASKED}
            await store.nodes.add(Node(id=name, **{**FENCED, **asked}))
        return await pass_gate(hold, Destruction.DISKS)

    refused = run(main())

    assert refused is not None
    assert refused.reason is Reason.NOT_CONFIRMED
    assert "a, b" in refused.unblock


def test_a_site_that_keeps_data_asks_about_a_strange_drive() -> None:
    async def main() -> list[Blocker | None]:
        store = open_store(":memory:", inline=True)
        more = {"tenant": "red", "served": "red, unknown", "boots": Boots.SYSTEM}
        hold = await fenced(store, **more)
        return [
            await pass_gate(hold, Destruction.DISKS, keeps=keeps, begins=True)
            for keeps in (False, True)
        ]

    erased, kept = run(main())

    assert erased is None
    assert kept is not None
    assert kept.reason is Reason.TRESPASS


OF_NODE, OF_CASE = ["read_node"], ["read_node", "get_case"]
OF_SITE = [*OF_CASE, "list_nodes"]


@pytest.mark.parametrize(
    ("act", "is_cut_off", "reads"),
    [
        (Destruction.TPM, True, OF_NODE),
        (Destruction.FIRMWARE, True, OF_NODE),
        (Destruction.IMAGE, True, OF_NODE),
        (Destruction.HOST_LOGIN, True, OF_NODE),
        (Destruction.RETIREMENT, True, OF_CASE),
        (Destruction.FORGOTTEN_LOGIN, False, OF_CASE),
        (Destruction.DISKS, False, OF_SITE),
        (Destruction.DISKS, True, [*OF_SITE, "list_open_cases"]),
    ],
)
def test_the_gate_reads_what_its_conditions_need_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, act: Destruction, is_cut_off: bool, reads: list[str]
) -> None:
    """Each reading delays an act that has been decided; a whole site's rows are thousands."""
    seen: list[str] = []

    def watch(name: str) -> None:
        real = getattr(Hold, name)

        async def read(hold: Hold) -> Any:
            seen.append(name)
            return await real(hold)

        monkeypatch.setattr(Hold, name, read)

    for name in ("read_node", "get_case", "list_nodes", "list_open_cases"):
        watch(name)

    async def main() -> None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store)
        if is_cut_off:
            await store.cases.add(cut_off("alert"), now=5.0)
        await pass_gate(hold, act)

    run(main())

    assert seen == reads


@pytest.mark.parametrize("stored", [False, True])
def test_a_factory_login_is_given_back_once_it_is_stored(stored: bool) -> None:
    async def main() -> Blocker | None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store, served="")
        case = cut_off("alert").model_copy(update={"retire_at": 9.0, "stage": Stage.RETIRING})
        await store.cases.add(case, now=5.0)
        return await pass_gate(hold, Destruction.FACTORY_LOGIN, stored=stored)

    assert (run(main()) is None) is stored


class OneLogin:
    """The vault's port with one pending login."""

    def __init__(self, pending: tuple[str, Secret] | None) -> None:
        self._pending = pending

    async def pending(self, _name: str) -> tuple[str, Secret] | None:
        return self._pending


@pytest.mark.parametrize(
    ("pending", "may"),
    [(None, False), (("root", Secret("other")), False), (("root", Secret("new")), True)],
)
def test_no_device_gets_a_password_that_is_not_stored(
    pending: tuple[str, Secret] | None, may: bool
) -> None:
    vault: Any = OneLogin(pending)

    async def main() -> tuple[bool, Blocker | None]:
        new = Secret("new")
        return await is_stored(vault, "n/host", new), await pass_login_gate(vault, "n/host", new)

    stored, refused = run(main())

    assert stored is may
    assert (refused is None) is may


def test_a_node_without_a_row_is_refused() -> None:
    async def main() -> Blocker | None:
        store = open_store(":memory:", inline=True)
        hold = await fenced(store)
        hold.operation = hold.operation.model_copy(update={"node": "gone"})
        return await pass_gate(hold, Destruction.FIRMWARE)

    assert run(main()) is not None
