"""Reads both ends of a node's cables, and returns those that are not as planned.

LLDP is asked first. Where a leaf's port hears no neighbour, the MACs that all leaves of the node
learned are compared with those of the cards; they are read only then, because the table of a leaf
is long.
"""

from __future__ import annotations

from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.release import release_cables


async def find_wrong_cables(
    tenancy: Tenancy, rechecks: Rechecks, node: Node, *, running: bool = True
) -> tuple[Blocker, ...]:
    """Return a blocker for each cable of the node that a person has to plug elsewhere.

    Without `running`, the node may be off: () while no leaf hears it by LLDP.
    """
    heard = await tenancy.heard(node.ports)
    if not running and not any(heard.values()):
        return ()
    leaves = {switch for switch, _ in heard}
    learned = {} if all(heard.values()) else await tenancy.learned(leaves)
    wrong = await rechecks.find_miscablings(node, heard, learned)
    return release_cables.make_cable_blockers(wrong)
