"""Make a tenant's login on a node at its handover, and prove it by the keys that it has then."""

from __future__ import annotations

from provisioner.execution.actions.work import Site
from provisioner.model.node import Node
from provisioner.model.release import GateRow
from provisioner.planning.release.tenant_login import build_login, judge_login, refuse_login
from provisioner.ports import PortError, ShellCommand, Store

LIMIT_S = 60.0


async def make_login(site: Site, store: Store, node: Node) -> tuple[GateRow, ...]:
    """Return the rows of the proof; none for a tenant without keys, whose node gets no account."""
    tenants = await store.tenants.list()
    keys = [k.public_key for t in tenants if t.name == node.tenant for k in t.ssh_keys]
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
