"""Give a node the user data of its tenant at its handover, and prove it by its digest there."""

from __future__ import annotations

from provisioner.execution.actions.work import Site
from provisioner.model.node import Node
from provisioner.model.release import GateRow
from provisioner.model.tenant import TenantUserData, name_user_data
from provisioner.planning.release.user_data import (
    build_placement,
    judge_placement,
    refuse_placement,
)
from provisioner.ports import PortError, ShellCommand

LIMIT_S = 60.0


def object_to_user_data(site: Site, node: Node, data: TenantUserData | None) -> GateRow | None:
    """Return the row that keeps a node from its tenant; None: its user data can be placed."""
    if data is None or site.settings.handover_login == "remove":
        return None
    return refuse_placement(node, "its tenant has user data, and `handover_login` is `keep`")


async def place_user_data(site: Site, node: Node, data: TenantUserData) -> GateRow:
    """Write the tenant's user data into the node's system and return the row of the proof."""
    sealed = await site.reach.credentials.current(name_user_data(node.tenant, data.version))
    if sealed is None:
        return refuse_placement(node, "its tenant's user data is not in the vault")
    text: str | None = None
    try:
        line = build_placement(node, data.version)
        command = ShellCommand("place_user_data", line, LIMIT_S, sealed[1])
        (output,) = await site.shell.run(node.id, node.address, [command])
        text = None if output.truncated else output.stdout
    except PortError:  # the row says that its end was not seen
        pass
    return judge_placement(node, sealed[1].reveal(), text)
