"""What people left in force of tenants, webhooks and capabilities, remembered beside revocations.

A key that a tenant removed, a webhook, a permission: their rows are gone or changed, so that an
older copy of the database shows nothing of it. The directory's file of revocations has, for each of
them, the newest state as digests; after a restore everything that an older row has beyond it is
removed again. What cannot be decided is removed: a person can give it again, and not take it back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping

from sqlalchemy import Connection, select, update

from provisioner.model.adoption.capability import Capability, Grant, GrantScope
from provisioner.model.base import Record
from provisioner.model.events.fleet_events import TenantChanged
from provisioner.model.integrations.webhook import Webhook
from provisioner.model.recovery import Revocation, RevokedKind
from provisioner.model.tenant import Tenant, TenantKey
from provisioner.ports.errors import DamagedRow
from provisioner.store.database.high_water import STANDING
from provisioner.store.repositories import webhooks as webhook_rows
from provisioner.store.repositories.grants import put_grants, read_grants
from provisioner.store.rows import journal, tenant_rows
from provisioner.store.rows.records import parse
from provisioner.store.schema.schema import tenants, webhooks

Subject = tuple[RevokedKind, str]
WHY = "removed or changed after the backup that was restored"
# a tenant's lists of what it has, or may reach; of each, elements that were removed stay removed
_LISTS = ("ssh_keys", "storage", "outside", "security_groups")
_GRANTED = "granted"


Standings = Mapping[Subject, Revocation | None]  # None: its row cannot be read


def read_standings(connection: Connection) -> Standings:
    """Return the present state of each tenant, webhook and capability."""
    found: dict[Subject, Revocation | None] = {}
    for tenant in tenant_rows.read_tenants(connection):
        found[RevokedKind.TENANT, tenant.name] = None if tenant.is_damaged else _stand(tenant)
    for name, webhook in _read_webhooks(connection).items():
        found[RevokedKind.WEBHOOK, name] = None if webhook is None else _stand_webhook(webhook)
    for grant in read_grants(connection):
        found[RevokedKind.CAPABILITY, grant.key] = Revocation(
            kind=RevokedKind.CAPABILITY,
            id=grant.key,
            at=grant.at,
            keep=(_GRANTED,) if grant.granted else (),
        )
    return found


def list_changes(
    before: Mapping[Subject, Revocation], found: Standings, now: float
) -> list[Revocation]:
    """The lines to add: each changed state, and what is gone as a state that keeps nothing."""
    changed = [line for subject, line in found.items() if line and before.get(subject) != line]
    gone = [line for subject, line in before.items() if subject not in found and line.keep]
    return changed + [
        line.model_copy(update={"at": max(now, line.at), "keep": ()}) for line in gone
    ]


def pick_newest(kept: Collection[Revocation]) -> dict[Subject, Revocation]:
    """Return the newest line of each subject, in the order of the file."""
    return {(r.kind, r.id): r for r in kept if r.kind in STANDING}


def remove_again(
    connection: Connection, kept: Collection[Revocation], now: float
) -> tuple[Revocation, ...]:
    """Remove from older rows what the newest lines do not keep; return the lines that did."""
    acts = {
        RevokedKind.TENANT: _cut_tenant,
        RevokedKind.WEBHOOK: _stop_webhook,
        RevokedKind.CAPABILITY: _withdraw,
    }
    newest = pick_newest(kept).values()
    return tuple(line for line in newest if acts[line.kind](connection, line, now))


def _cut_tenant(connection: Connection, line: Revocation, now: float) -> bool:
    try:
        tenant = tenant_rows.read_tenant(connection, line.id)
    except DamagedRow:
        return False  # nothing is given to its nodes while it cannot be read
    if tenant is None or tenant.generation >= line.generation + (not line.keep):
        return False
    gone = set(_list_marks(tenant)) - set(line.keep)
    fields = {
        name: tuple(e for e in getattr(tenant, name) if _mark(name, e) not in gone)
        for name in _LISTS
    }
    lost = any(mark.startswith("user_data:") for mark in gone)
    # later than every row of before the restore, so that another restore is judged by this one
    changed = {**fields, "generation": line.generation + 1}
    cut = tenant.model_copy(update=changed | ({"user_data": None} if lost else {}))
    values = {"generation": cut.generation, "body": cut.model_dump_json()}
    connection.execute(update(tenants).where(tenants.c.name == tenant.name).values(**values))
    if gone:
        journal.append(connection, TenantChanged(request=WHY, tenant=cut), now)
    return bool(gone)


def _stop_webhook(connection: Connection, line: Revocation, now: float) -> bool:
    webhook = _read_webhooks(connection).get(line.id)
    if webhook is None or webhook.made_at > line.at or _mark_webhook(webhook) in line.keep:
        return False
    if not line.keep:
        return webhook_rows.remove_webhook(connection, line.id, WHY, now)
    if webhook.paused_why:
        return False
    webhook_rows.pause(connection, line.id, WHY, now)
    return True


def _withdraw(connection: Connection, line: Revocation, now: float) -> bool:
    if line.keep:
        return False
    present = {grant.key: grant for grant in read_grants(connection)}.get(line.id)
    if present is not None and (not present.granted or present.at > line.at):
        return False
    scope, _, rest = line.id.partition(":")
    name, _, capability = rest.rpartition(":")
    if scope not in list(GrantScope) or capability not in list(Capability):
        return False  # a capability that this version does not have
    withdrawn = Grant(
        scope=GrantScope(scope),
        name=name,
        capability=Capability(capability),
        granted=False,
        at=now,
        reason=WHY,
    )
    put_grants(connection, [withdrawn], now)
    return True


def _stand(tenant: Tenant) -> Revocation:
    return Revocation(
        kind=RevokedKind.TENANT,
        id=tenant.name,
        at=0.0,
        keep=tuple(sorted(_list_marks(tenant))),
        generation=tenant.generation,
    )


def _stand_webhook(webhook: Webhook) -> Revocation:
    mark = _mark_webhook(webhook)
    kind = RevokedKind.WEBHOOK
    return Revocation(kind=kind, id=webhook.name, at=webhook.made_at, keep=(mark,))


def _list_marks(tenant: Tenant) -> Iterator[str]:
    """Yield the digest of each thing that a tenant has, or may reach."""
    for name in _LISTS:
        for element in getattr(tenant, name):
            yield _mark(name, element)
    if tenant.user_data is not None:  # by its random name: no digest of the text is anywhere
        yield f"user_data:{tenant.user_data.version}"


def _mark(name: str, element: TenantKey | Record | str) -> str:
    """Return the digest of an element; a key is itself whoever added it, and whenever."""
    if isinstance(element, TenantKey):
        content = element.public_key
    else:
        content = element if isinstance(element, str) else element.model_dump_json()
    return f"{name}:{_digest(content)}"


def _mark_webhook(webhook: Webhook) -> str:
    fields = webhook.model_dump(mode="json", exclude={"made_at", "paused_why"})
    return _digest(json.dumps([fields, bool(webhook.paused_why)], sort_keys=True))


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _read_webhooks(connection: Connection) -> dict[str, Webhook | None]:
    """Return each webhook by name; None where its row cannot be read."""
    found: dict[str, Webhook | None] = {}
    for name, body in connection.execute(select(webhooks.c.name, webhooks.c.body)):
        try:
            found[name] = parse(Webhook, body, f"webhooks, {name}")
        except DamagedRow:
            found[name] = None
    return found
