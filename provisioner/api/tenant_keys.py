"""Routes of a tenant's SSH keys: list, show, set, remove; `dry_run` on each change.

A tenant's nodes get the keys at their handover, in an account of the tenant. On a node that it
already has the system is the tenant's own, and no change of a key goes there.
"""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS_AND_TENANTS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.tenant import Tenant, TenantKey
from provisioner.planning.release.tenant_login import (
    LINE_MAX,
    compute_fingerprint,
    parse_public_key,
)

TAG = "tenants"
PATH = "/tenants/{tenant}/keys"
KEYS_MAX = 16
PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_NAME = re.compile(PATTERN, re.ASCII)


class TenantKeyView(TenantKey):
    """A public key of a tenant's login."""

    fingerprint: str = Field(description="SHA-256 of the key, as `ssh-keygen -l` prints it.")


class TenantKeyList(Record):
    """The keys of a tenant, by name."""

    items: tuple[TenantKeyView, ...]


class NewTenantKey(Record):
    """The body of a key."""

    public_key: str = Field(
        min_length=1,
        max_length=LINE_MAX,
        description="A public key as OpenSSH writes it: kind, base64, comment; no options. "
        "The comment is not stored.",
    )

    @field_validator("public_key")
    @classmethod
    def _check(cls, line: str) -> str:
        return parse_public_key(line)


def _view(key: TenantKey) -> TenantKeyView:
    return TenantKeyView(**dict(key), fingerprint=compute_fingerprint(key.public_key))


async def list_keys(ask: Ask) -> Reply:
    row = await ask.read_tenant()
    return Reply(TenantKeyList(items=tuple(_view(key) for key in row.ssh_keys)))


async def show_key(ask: Ask) -> Reply:
    row = await ask.read_tenant()
    key = _find(row, ask.read_word("key"))
    if key is None:
        raise refuse_missing("key")
    return Reply(_view(key))


async def put_key(ask: Ask) -> Reply:
    """Ask for a key of this name, new or instead of the present one."""
    row = await ask.read_tenant()
    name = ask.read_word("key")
    if not _NAME.fullmatch(name):
        unblock = "Use small letters, digits and . _ -, at most 63."
        raise build_refusal(400, "key", "This is no name of a key", unblock, name[:64])
    arguments = {"name": name, "public_key": ask.body.public_key}
    kind = ChangeKind.TENANT_KEY_SET
    return await ask.parts.works.submit_change(ask, kind, row.name, row.name, arguments)


async def delete_key(ask: Ask) -> Reply:
    row = await ask.read_tenant()
    name = ask.read_word("key")
    if _find(row, name) is None:
        raise refuse_missing("key")
    kind = ChangeKind.TENANT_KEY_REMOVE
    return await ask.parts.works.submit_change(ask, kind, row.name, row.name, {"name": name})


def _find(row: Tenant, name: str) -> TenantKey | None:
    return next((key for key in row.ssh_keys if key.name == name), None)


async def change_keys(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of a tenant's keys."""
    rows = await parts.store.tenants.list()
    row = next((t for t in rows if t.name == asked.subject), None)
    if row is None:
        return build_objection(asked.subject, "there is no such tenant", "Look at the list.")
    name = str(asked.arguments["name"])
    keys = [key for key in row.ssh_keys if key.name != name]
    if asked.kind is ChangeKind.TENANT_KEY_SET:
        key = TenantKey(
            name=name,
            public_key=parse_public_key(str(asked.arguments["public_key"])),
            added_by=asked.asked_by,
            added_at=parts.clock.now(),
        )
        if any(other.public_key == key.public_key for other in keys):
            detail = f"the tenant has the key {compute_fingerprint(key.public_key)} already"
            return build_objection(row.name, detail, "Remove it under its other name.")
        keys.append(key)
    if len(keys) > KEYS_MAX:
        detail = f"it would have {len(keys)} keys, more than {KEYS_MAX}"
        return build_objection(row.name, detail, "Remove one before.")
    answer = await parts.keeper.keep_keys(row.name, keys, by=asked.asked_by)
    if answer.blockers:
        return build_failure(*answer.blockers)
    return Outcome(RequestState.DONE, {"tenant": row.name, "keys": [k.name for k in keys]})


async def foresee_keys(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the keys that the tenant's next node would get."""
    rows = await parts.store.tenants.list()
    names = {k.name for t in rows if t.name == asked.subject for k in t.ssh_keys}
    name = str(asked.arguments["name"])
    names = names | {name} if asked.kind is ChangeKind.TENANT_KEY_SET else names - {name}
    kept = ", ".join(sorted(names)) or "none"
    return Forecast(
        (f"{asked.subject} has the keys: {kept}. Nodes that it has already stay as they are.",)
    )


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        PATH,
        "list_tenant_keys",
        TAG,
        "List the SSH keys that a tenant's nodes get at their handover.",
        ANYBODY,
        list_keys,
        {200: TenantKeyList},
    ),
    Route(
        "GET",
        PATH + "/{key}",
        "show_tenant_key",
        TAG,
        "Show one SSH key of a tenant.",
        ANYBODY,
        show_key,
        {200: TenantKeyView},
    ),
    Route(
        "PUT",
        PATH + "/{key}",
        "set_tenant_key",
        TAG,
        "Set an SSH key of a tenant; the nodes that it gets from then on have it.",
        OPERATORS_AND_TENANTS,
        put_key,
        _ASKED,
        effect=Effect.LASTING,
        body=NewTenantKey,
        example={
            "public_key": "ssh-ed25519 "
            "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@laptop"
        },
    ),
    Route(
        "DELETE",
        PATH + "/{key}",
        "remove_tenant_key",
        TAG,
        "Remove an SSH key of a tenant; nodes that it has already stay as they are.",
        OPERATORS_AND_TENANTS,
        delete_key,
        _ASKED,
        effect=Effect.LASTING,
    ),
)
