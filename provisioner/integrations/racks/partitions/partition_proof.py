"""Whether the GPUs of an NVLink domain's trays are in their partitions, by two looks.

Those of a tray that serves are in its tenant's and in no other, those of one that serves nobody in
none but the factory's. A tray that is not listed whole, or is none of the daemon's nodes, proves
nothing, and no more does a request whose end the manager does not list yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from provisioner.integrations.racks.duty.node_holds import NodeHolds, place_nodes
from provisioner.integrations.racks.fabric.fabric_proof import list_trays
from provisioner.integrations.racks.partitions.nmx_client import POLL_S
from provisioner.integrations.racks.partitions.owed_acts import FILE, OwedFile
from provisioner.integrations.racks.plan import read_record
from provisioner.integrations.racks.update_world import Update
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.model.recovery import GateCheck
from provisioner.ports import PortError
from provisioner.ports.isolation import Drift

LOOKS = 2
UNSET = "`racks_nvlink_manager` is not set: nobody reads them"


async def find_partition_lack(update: Update, domain: str, holds: NodeHolds) -> str:
    """Return why the partitions of a domain's trays are not proved, "" if they are."""
    beside = holds.parts.fabrics
    systems = () if beside is None else beside.memberships
    system = next((one for one in systems if one.check is GateCheck.NVLINK_PARTITION), None)
    if system is None:
        return UNSET
    trays = list_trays(update.plan, domain)
    for number in range(LOOKS):
        if number:
            await update.pause(POLL_S)
        nodes = await holds.parts.store.nodes.list()
        placed = {unit: node for unit, (node, _) in place_nodes(update.plan, nodes).items()}
        try:
            found = await system.find_drift(nodes, _admit_none)
            owed = await asyncio.to_thread(_find_owed, domain, holds)
        except (PortError, InputError, OSError) as error:
            return f"the manager's lists were not read: {error}"
        if found is None:
            return UNSET
        judged = {tray: found.get(placed[tray].id) for tray in trays if tray in placed}
        lacks = [*_find_lacks({tray: judged.get(tray) for tray in trays}), *owed]
        if lacks:
            return lacks[0]
    return ""


def _find_lacks(judged: Mapping[str, Drift | None]) -> Iterator[str]:
    """Yield what is not as it has to be, or not known, by the judgement of each tray."""
    most = max((one.listed for one in judged.values() if one is not None), default=0)
    for tray, one in judged.items():
        if one is None:
            yield f"{tray} was not judged: it is no node of this daemon, or on its way"
            continue
        yield from (f"{tray}: {each}" for each in sorted(one.wrong | one.unread))
        if not one.listed or one.listed < most:
            yield f"{tray}: the manager lists {one.listed} GPUs of it, and of others {most}"


def _find_owed(domain: str, holds: NodeHolds) -> Sequence[str]:
    """Return the requests in a domain whose end was not listed yet. Raises InputError."""
    file = Path(holds.parts.settings.racks_folder) / FILE
    acts = read_record(file, OwedFile).acts if file.exists() else ()
    mine = [one.act for one in acts if one.act.name.endswith(f".{domain}")]
    return [f"the manager does not list the end of {act} yet" for act in mine]


async def _admit_none(_: Node) -> bool:
    return False  # a row that names no release into a partition proves none
