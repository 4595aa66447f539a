"""Have a node erased and record the outcome: it is clean only if the report proves it."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape

from provisioner.control.node.observer import Observer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.observe.login_change import change_after_tenant
from provisioner.execution.steps.erasure import Eraser
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.execution.steps.setup_passwords import change_setup_password
from provisioner.model.events.node_events import NodeNotSanitized, NodeSanitized
from provisioner.model.node import Node, TenantData
from provisioner.model.outcome import Blocker
from provisioner.planning.certification.part_changes import STRANGER
from provisioner.planning.erasure.drives import list_erased
from provisioner.planning.erasure.erasure import list_unsanitized
from provisioner.ports import Store


async def sanitize(
    store: Store,
    observer: Observer,
    eraser: Eraser,
    hold: Hold,
    node: Node,
    *,
    changes_logins: bool = False,
    changes_setup: bool = False,
) -> Sequence[Blocker]:
    """Erase the node; return the blockers of its cleanness, () if it is clean. The report is always
    stored. `changes_logins`: the passwords of its BMCs are changed first. `changes_setup`: its
    set-up password is changed at the end; what prevents that is in its row, and blocks nothing.
    """
    inventory = await store.evidence.get_inventory(node.id)
    if inventory is None:
        inventory, unseen = await observer.read_bmcs(node)
        if inventory is None:
            return unseen
    if changes_logins and node.served != STRANGER:
        refused = await change_after_tenant(eraser.site, store.credential_standings, node)
        if refused:
            return refused
    noted = await hold.record(node=node.model_copy(update={"note": "it is being erased"}))
    assert noted is not None
    ends = await _list_destinations(store, noted)
    erased = await eraser.erase(hold, noted, inventory, observer.disks_of(noted), ends)
    if isinstance(erased, Blocker):
        return (erased,)
    node, report = erased
    if changes_setup:
        stay = Stay(eraser.site, hold, node, inventory)
        unready = await change_setup_password(stay, store.credential_standings)
        if unready is not None:
            return (unready,)
        node = stay.node
    problems = list_unsanitized(report, eraser.policy)
    digest = await store.evidence.put_output(report.model_dump_json())
    changes: dict[str, object] = {
        "erasure": digest,
        "note": "sanitized",
        "served": "",
        "tenant_data": TenantData.SETTLED,
    }
    if problems:
        kept = {"served": node.served, "tenant_data": node.tenant_data}
        changes |= {"note": str(problems[0]), **kept}
    else:
        changes["drives"] = list_erased(report)
        await eraser.forget_host_key(node)
    event_class = NodeNotSanitized if problems else NodeSanitized
    event = event_class(report=digest, problems=tuple(str(p) for p in problems))
    await hold.record(node=node.model_copy(update=changes), events=[event])
    return problems


async def _list_destinations(store: Store, node: Node) -> list[str]:
    """Return where this daemon has the node's BMCs send their events, as patterns."""
    made = await store.alerts.list_subscriptions()
    return [escape(one.destination) for one in made if one.node == node.id]
