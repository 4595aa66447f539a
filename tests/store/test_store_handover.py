"""The transaction that records a handover: it is refused where the node's standing was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import Node, NodeKind, ReleaseConditions
from provisioner.model.tenant import Tenant
from provisioner.planning.certification import certification
from provisioner.ports import StaleWrite
from provisioner.store import SqlStore

NODE = Node(id="n1", kind=NodeKind.HOST)
CERTIFICATE = Certificate(
    id="c1", node="n1", release="r", profile="p", serials=("s",), versions=(), boot_id="b",
    location="l", ports=(), report_digest="d", matrix_digest="m", issued_at=1, expires_at=9,
)  # fmt: skip


def inventory(drive: str) -> Inventory:
    device = Device(kind=DeviceKind.STORAGE, slot="0", serial=drive)
    return Inventory(node="n1", vendor="v", devices=(device,))


async def revoke(store: SqlStore) -> None:
    await store.evidence.revoke("c1", "an alert came", 4.0)


async def read_another_drive(store: SqlStore) -> None:
    operation = (await store.operations.list_active())[0]
    await store.operations.record(operation, inventory=inventory("another"), now=4.0)


def lose(table: str) -> Callable[[SqlStore], Awaitable[None]]:
    """The rows are gone, as after damage to the database."""

    async def lost(store: SqlStore) -> None:
        await store.write(lambda c: c.exec_driver_sql(f"DELETE FROM {table}"))

    return lost


async def change_network(store: SqlStore) -> None:
    await store.tenants.put(Tenant(name="red", vrf="RED2"))


async def change_nothing(_store: SqlStore) -> None:
    return None


@pytest.mark.parametrize(
    ("act", "now", "why"),
    [
        (change_nothing, 5.0, ""),
        (revoke, 5.0, "was revoked"),
        (change_nothing, 9.0, "has expired"),
        (read_another_drive, 5.0, "have changed"),
        (lose("inventories"), 5.0, "have changed"),
        (lose("certificates"), 5.0, "was revoked"),
        (lose("tenants"), 5.0, "is not the network of tenant red"),
        (change_network, 5.0, "is not the network of tenant red"),
    ],
)
def test_a_handover_is_recorded_only_while_the_standing_holds(run, act, now, why):
    async def scenario(store):
        await store.nodes.add(NODE)
        await store.tenants.put(Tenant(name="red", vrf="RED"))
        operation = await store.operations.take(
            (await store.operations.open("n1", "journey", 1.0)).id
        )
        first = {"inventory": inventory("first"), "certificate": CERTIFICATE}
        await store.operations.record(operation, **first, now=2.0)
        identity = certification.identify_installation(inventory("first"))
        standing = ReleaseConditions(certificate="c1", inventory=identity, tenant="red", vrf="RED")
        await act(store)
        handed = NODE.model_copy(update={"note": "handed over"})
        said = ""
        try:
            operation = (await store.operations.list_active())[0]
            await store.operations.record(operation, node=handed, standing=standing, now=now)
        except StaleWrite as stale:
            said = str(stale)
        return said, (await store.nodes.get("n1")).note

    said, note = run(scenario)

    assert (why in said, bool(said)) == (True, bool(why))
    assert note == ("" if why else "handed over")
