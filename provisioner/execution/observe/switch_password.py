"""Takes a switch over that still has its factory password: a new one, ours, before anything else.

The API does nothing until the password was changed, and cannot change it itself. As with a BMC, the
new one is stored as pending before the switch hears of it; afterwards either one is tried, so that
a crash at any point leaves one that we know.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import new_password
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import LoginCheck
from provisioner.ports import Secret, SwitchAddress


async def take_over(site: Site, node: Node, pin: str) -> Blocker | None:
    """Ensure that the API accepts a credential of ours; None if it does.

    A password from the list that is no factory password is not changed: it is the site's own.
    Raises `PortError` while the switch does not answer; the next try continues from the stored
    state.
    """
    name = f"{node.id}/api"
    credentials = site.reach.credentials
    current = await credentials.current(name)
    pending = await credentials.pending(name)
    if current is None:
        return _no(name, "no credential is stored for it", "Add it to the list.")
    if pending is not None and (await _check(site, node, pin, *pending)).status == "accepted":
        await credentials.confirm(name)  # a crash came between the switch's yes and our note
        return None
    check = await _check(site, node, pin, *current)
    if check.status == "accepted":
        return None
    if check.status != "must_change":
        detail = f"its API does not accept the credential of the list: {check.detail}"
        return _no(name, detail, "Correct the password on the list, then take it in again.")
    if site.reach.passwords is None:
        detail = "it has its factory password, and its API does nothing until that was changed"
        remedy = "Log in to it, choose a new password, put that on the list, take it in again."
        return _no(name, detail, remedy)
    username, old = current
    new = pending[1] if pending is not None else new_password()
    await credentials.begin(name, username, new)
    address = urlsplit(node.address).hostname or ""
    async with turn(node.id):
        await site.reach.passwords.change(node.id, address, username, old, new)
    if (await _check(site, node, pin, username, new)).status != "accepted":
        detail = "it took a new password, and its API does not accept it"
        return _no(name, detail, "Reset the account at its console, then take it in again.")
    await credentials.confirm(name)
    return None


async def _check(site: Site, node: Node, pin: str, username: str, secret: Secret) -> LoginCheck:
    address = SwitchAddress(node.address, username, secret, pin, node.os)
    switch = site.reach.switches.open(node.id, address, site.clock, site.settings)
    return await switch.check_login()


def _no(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.LOGIN_REFUSED, subject=subject, detail=detail, unblock=unblock)
