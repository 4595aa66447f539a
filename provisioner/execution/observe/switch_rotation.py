"""Changes the password of a switch's API for life, so that a crash at any point leaves one we know.

As with a BMC: the new password is stored as pending before the switch hears of it, and becomes the
one in force after the API accepted it and the configuration was saved, since a switch that restarts
before that has the old one again. A switch sees two failed logins at most: it locks its user after
five.
"""

from __future__ import annotations

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import new_password
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import LoginRefused, PortError, Secret, SwitchAddress
from provisioner.ports.switch import Switch, SwitchRefused

Login = tuple[str, Secret]


async def change_switch_login(site: Site, node: Node) -> Blocker | None:
    """Change the password; raises `PortError` while the switch does not answer."""
    name = f"{node.id}/api"
    address = await site.reach.switch(node)
    if isinstance(address, Blocker):
        return address
    if address.secret is None:
        detail = "it is reached with a key of the site: no password is stored"
        return _no(name, Reason.NOT_OFFERED, detail, "Exchange the key by the site's own means.")
    with site.reach.hold_login(name) as held:
        if not held:
            detail = "another change of its password is under way"
            return _no(name, Reason.BUSY, detail, "It is tried again by itself.")
        async with turn(node.id):
            return await _change(site, node, address)


async def _change(site: Site, node: Node, address: SwitchAddress) -> Blocker | None:
    name = f"{node.id}/api"
    credentials = site.reach.credentials
    assert address.secret is not None
    current: Login = (address.username, address.secret)
    pending = await credentials.pending(name)
    if pending is not None:
        taken = await _find_taken(site, node, address, current, pending)
        if taken is None:
            raise LoginRefused("it accepts neither of the two passwords that are stored")
        if taken == pending:
            return await _settle(site, node, address, pending)
    new = pending or (address.username, new_password())
    await credentials.begin(name, *new)
    failed: PortError | None = None
    try:
        await _open(site, node, address, current).set_password(*new)
    except (LoginRefused, SwitchRefused) as error:  # the old password is void since this revision
        failed = error
    if await _accepts(site, node, address, new):
        await credentials.expect_pending(name)
        return await _settle(site, node, address, new)
    if isinstance(failed, SwitchRefused) and failed.reason is not Reason.LOGIN_REFUSED:
        raise failed
    detail = "it took a new password, and its API does not accept it"
    remedy = "Reset the account at its console, then take it in again."
    return _no(name, Reason.LOGIN_REFUSED, detail, remedy)


async def _settle(site: Site, node: Node, address: SwitchAddress, login: Login) -> Blocker | None:
    """Make a password that is in force survive a restart; then it is the one that is stored."""
    switch = _open(site, node, address, login)
    if not await switch.is_saved():
        await switch.save_configuration()
    until = site.clock.now() + site.settings.switch_apply_limit_s
    while not await switch.is_saved():
        if site.clock.now() >= until:
            detail = "its API accepts the new password, and its configuration is not saved"
            return _no(f"{node.id}/api", Reason.SWITCH_REFUSED, detail, "It is tried again.")
        await site.clock.sleep(site.settings.switch_poll_s)
    await site.reach.credentials.confirm(f"{node.id}/api")
    return None


async def _find_taken(
    site: Site, node: Node, address: SwitchAddress, current: Login, pending: Login
) -> Login | None:
    """Return the password that the API accepts, the likelier one first; None: neither."""
    likely = await site.reach.credentials.is_pending_likely(f"{node.id}/api")
    for login in (pending, current) if likely else (current, pending):
        if await _accepts(site, node, address, login):
            return login
        if login == current:
            await site.reach.credentials.expect_pending(f"{node.id}/api")
    return None


async def _accepts(site: Site, node: Node, address: SwitchAddress, login: Login) -> bool:
    return (await _open(site, node, address, login).check_login()).status == "accepted"


def _open(site: Site, node: Node, address: SwitchAddress, login: Login) -> Switch:
    to = SwitchAddress(address.url, *login, address.pin, address.system)
    reach: Reach = site.reach
    return reach.switches.open(node.id, to, site.clock, site.settings)


def _no(subject: str, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
