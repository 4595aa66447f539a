"""Remove the daemon's login from a host at its handover, and prove it by a refused login."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import pass_gate
from provisioner.execution.actions.work import Site, host_key
from provisioner.model.inventory import Inventory
from provisioner.model.node import Boots, Node
from provisioner.model.outcome import Blocker
from provisioner.model.recovery import GateRow
from provisioner.model.tenant import LibraryMinimum, Tenant, TenantUserData, name_user_data
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.release.tenant_login import (
    build_login,
    build_minimums,
    build_placement,
    build_removal,
    judge_login,
    judge_minimums,
    judge_placement,
    judge_removal,
    refuse_login,
    refuse_placement,
    refuse_removal,
    tell_minimums,
)
from provisioner.ports import LoginRefused, PortError, ShellCommand
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Make a tenant's login on a node at its handover, and prove it by the keys that it has then.


LIMIT_S = 60.0


async def make_login(site: Site, tenant: Tenant | None, node: Node) -> tuple[GateRow, ...]:
    """Return the rows of the proof; none for a tenant without keys, whose node gets no account."""
    keys = [] if tenant is None else [key.public_key for key in tenant.ssh_keys]
    if not keys:
        return ()
    user = site.settings.tenant_user
    if refused := refuse_login(node, user, site.login.user if site.login is not None else ""):
        return (refused,)
    text: str | None = None
    try:
        command = ShellCommand("make_tenant_login", build_login(user, keys), LIMIT_S)
        (output,) = await site.shell.run(node.id, node.address, [command])
        text = None if output.truncated else output.stdout
    except PortError:  # the row says that its end was not seen
        pass
    return (judge_login(node, user, keys, text),)


# ------------------------------------------------------------------------------
# Give a node the user data of its tenant at its handover, and prove it by its digest there.


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


# ------------------------------------------------------------------------------
# Tell a tenant at its handover how old its libraries may be, and prove it by the digest there.


async def write_minimums(
    site: Site, node: Node, minimums: Sequence[LibraryMinimum]
) -> tuple[GateRow, ...]:
    """Write the oldest versions into the node's metadata and return the row of the proof."""
    if site.settings.host_metadata == "off":
        return (tell_minimums(node, minimums, "the site serves no metadata (`host_metadata`)"),)
    if site.login is None:
        return (tell_minimums(node, minimums, "the daemon has no login (--ssh-key)"),)
    text: str | None = None
    try:
        command = ShellCommand("write_minimums", build_minimums(minimums), LIMIT_S)
        (output,) = await site.shell.run(node.id, node.address, [command])
        text = None if output.truncated else output.stdout
    except PortError:  # the row says that its end was not seen
        pass
    return (judge_minimums(node, minimums, text),)


LOGIN_REMOVAL_LIMIT_S = 120.0
TRIES = 6  # logins that are tried afterwards, until the host answers one
REFUSED_LOGIN = ShellCommand("refused_login", "true", 20.0)


def object_to_removal(site: Site, node: Node, inventory: Inventory | None) -> Blocker | None:
    """Return why the site's setting cannot be carried out on this node; None: it can."""
    if site.settings.handover_login == "keep":
        return None
    return refuse_removal(node, inventory, site.login.user if site.login is not None else "")


async def exchange_logins(
    site: Site, store: SqlStore, hold: Hold, node: Node, minimums: Sequence[LibraryMinimum]
) -> tuple[Node, tuple[GateRow, ...]]:
    """Make the tenant's login, then remove the daemon's where the setting says so.

    `minimums`: the oldest versions of its libraries, of which the tenant is told.

    Return the stored node and the rows of both proofs. The daemon keeps its login where the first
    one failed.
    """
    tenant = next((t for t in await store.tenants.list() if t.name == node.tenant), None)
    data = None if tenant is None else tenant.user_data
    if (refused := object_to_user_data(site, node, data)) is not None:
        return node, (refused,)
    made = await write_minimums(site, node, minimums)
    if not any(row.bad for row in made):
        made += await make_login(site, tenant, node)
    if any(row.bad for row in made):
        return node, made
    node, removed = await remove_login(site, hold, node, data)
    return node, made + removed


async def remove_login(
    site: Site, hold: Hold, node: Node, data: TenantUserData | None = None
) -> tuple[Node, tuple[GateRow, ...]]:
    """Remove the login where the setting says so; return the stored node and rows of the proof.

    The tenant's user data is placed just before. The node counts as one without a login before the
    act, also if the daemon ends in between: its way back begins with another system.
    """
    if site.settings.handover_login == "keep":
        return node, ()
    stored = await hold.record(node=node.model_copy(update={"boots": Boots.HANDED_OVER}))
    assert stored is not None
    if data is None:
        return stored, (await _remove(site, hold, stored, seeded=False),)
    placed = await place_user_data(site, stored, data)
    if placed.bad:
        return stored, (placed,)
    return stored, (placed, await _remove(site, hold, stored, seeded=True))


async def _remove(site: Site, hold: Hold, node: Node, *, seeded: bool) -> GateRow:
    """Remove the login and return the row of the proof.

    The host that refuses is the same one: its pinned key is verified before it is asked.
    """
    assert site.login is not None, "object_to_removal comes first"
    line = build_removal(site.login.user, site.login.authorized_key, seeded=seeded)
    text: str | None = None
    if (blocker := await pass_gate(hold, Destruction.HOST_LOGIN)) is not None:
        return judge_removal(node, None, admitted=None, refused=blocker.detail)
    try:
        command = ShellCommand("remove_login", line, LOGIN_REMOVAL_LIMIT_S)
        (output,) = await site.shell.run(node.id, node.address, [command])
        text = None if output.truncated else output.stdout
    except PortError:  # the row says that its end was not seen
        pass
    _, public = await host_key(site.reach.credentials, node)
    for attempt in range(TRIES):
        if attempt:
            await site.clock.sleep(site.settings.poll_s)
        await site.shell.forget(node.id, public)  # a kept connection would prove nothing
        try:
            await site.shell.run(node.id, node.address, [REFUSED_LOGIN])
        except LoginRefused:
            return judge_removal(node, text, admitted=False)
        except PortError:
            continue
        return judge_removal(node, text, admitted=True)
    return judge_removal(node, text, admitted=None)
