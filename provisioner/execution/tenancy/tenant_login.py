"""Make a tenant's login on a node at its handover, and prove it by the keys that it has then."""

from __future__ import annotations

from provisioner.execution.actions.work import Site
from provisioner.model.node import Node
from provisioner.model.release import GateRow
from provisioner.model.tenant import Tenant
from provisioner.planning.release.tenant_login import build_login, judge_login, refuse_login
from provisioner.ports import PortError, ShellCommand

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
