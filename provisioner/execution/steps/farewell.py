"""Release a node's BMCs when the node is removed for good: power off, and our credentials given up.

A credential is deleted last, when nothing needs it any more; after an interruption the whole
sequence is repeated, and this does no harm.
"""

from __future__ import annotations

from dataclasses import replace

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import is_stored, pass_gate
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import opens_login, rotate
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.ports import PortError

FACTORY = "factory"  # beginning of the vault's names of factory logins: "factory/VENDOR"
CARDS = "nvidia_openbmc"  # the vendor declaration of BlueField cards


async def power_off(site: Site, node: Node) -> str:
    """Why the host is not off; "" if it accepted the request. An unreachable host is reported."""
    try:
        client = await site.reach.redfish(node, "host")
        if isinstance(client, Blocker):
            return client.detail
        refused = await client.reset_system("ForceOff")
    except PortError as error:
        return str(error)[:300]
    return "" if refused is None else refused.detail[:300]


async def forget_credentials(site: Site, hold: Hold, node: Node) -> Blocker | None:
    """Delete the logins of the node's BMCs here; on the BMCs they are not changed. A Blocker: they
    are kept.
    """
    if (blocker := await pass_gate(hold, Destruction.FORGOTTEN_LOGIN)) is not None:
        return blocker
    for bmc in node.bmcs:
        await site.reach.credentials.remove(f"{node.id}/{bmc.name}")
    return None


async def give_back(site: Site, hold: Hold, node: Node, vendor: str) -> Blocker | None:
    """Restore the factory password of every BMC and delete ours; or return why one was not
    restored.

    Raises PortError while a BMC does not answer.
    """
    for bmc in node.bmcs:
        name = f"{node.id}/{bmc.name}"
        if await site.reach.credentials.current(name) is None:
            continue  # it was given back before
        refused = await _give_back(site, hold, node, bmc, CARDS if bmc.kind != "host" else vendor)
        if refused is not None:
            return refused
        if (blocker := await pass_gate(hold, Destruction.FORGOTTEN_LOGIN)) is not None:
            return blocker
        await site.reach.credentials.remove(name)
    return None


async def _give_back(
    site: Site, hold: Hold, node: Node, bmc: BmcRef, vendor: str
) -> Blocker | None:
    credentials = site.reach.credentials
    name = f"{node.id}/{bmc.name}"
    factory = await credentials.current(f"{FACTORY}/{vendor}")
    address = await site.reach.address(node, bmc)
    if isinstance(address, Blocker):
        return address
    if factory is None or factory[0] != address.username:
        detail = f"no factory login of {vendor} for {address.username} is known"
        unblock = "Keep it with `provisioner case factory`, or set `retire_credentials` to remove."
        return _no(name, detail, unblock)
    transport = site.reach.transport
    quirk = await site.reach.quirk(address)
    pending = await credentials.pending(name)
    if pending is not None and pending != factory:  # either may be in force: that change is ended
        settled = await rotate(transport, credentials, quirk, name, address)
        if isinstance(settled, Blocker):
            return settled
        address = settled
    theirs = replace(address, secret=factory[1])
    if pending == factory and await opens_login(transport, theirs, quirk):
        return None  # a crash came between the BMC's yes and our note
    await credentials.begin(name, *factory)
    stored = await is_stored(credentials, name, factory[1])
    if (blocker := await pass_gate(hold, Destruction.FACTORY_LOGIN, stored=stored)) is not None:
        return blocker
    refused = await Redfish(transport, address, quirk).set_password(*factory)
    if refused is not None or await opens_login(transport, theirs, quirk):
        return refused
    detail = "the BMC took the factory's password, and does not accept it; ours is kept"
    return _no(name, detail, "Set it by hand, or set `retire_credentials` to keep.")


def _no(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.REFUSED, subject=subject, detail=detail, unblock=unblock)
