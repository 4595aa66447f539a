"""Routes of a tenant's user data: show its record, set, remove; `dry_run` on each change.

Rule: the text comes in the body of a request and goes sealed into the vault before the request is
recorded. No answer, journal, event or log has it, nor a digest of it: it can hold secrets.
"""

from __future__ import annotations

import secrets

from pydantic import Field, field_validator

from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply, get_vault
from provisioner.api.problem import Refused, refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS_AND_TENANTS, Effect, Route
from provisioner.api.routes import tenants
from provisioner.api.scopes import require_scope
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.tenant import Tenant, TenantUserData, name_user_data
from provisioner.planning.release.tenant_login import USER_DATA_MAX, parse_user_data
from provisioner.ports.wire import Secret

TAG = "tenants"
PATH = "/tenants/{tenant}/user-data"


class UserDataView(TenantUserData):
    """The record of a tenant's user data. Its text is never shown."""


class NewUserData(Record):
    """The body of a user data."""

    user_data: str = Field(
        min_length=1,
        max_length=USER_DATA_MAX,
        description="A cloud-config (its first line is `#cloud-config`) or a script (`#!` and the "
        "path of its interpreter). It is sealed at rest, and never shown again.",
    )

    @field_validator("user_data")
    @classmethod
    def _check(cls, text: str) -> str:
        parse_user_data(text)
        return text


async def show_user_data(ask: Ask) -> Reply:
    row = await ask.read_tenant()
    if row.user_data is None:
        raise refuse_missing("user data of this tenant")
    return Reply(UserDataView(**dict(row.user_data)))


async def put_user_data(ask: Ask) -> Reply:
    """Seal a user data, then ask for it instead of the present one."""
    row = await ask.read_tenant()
    text: str = ask.body.user_data
    version = secrets.token_hex(8)
    arguments = {
        "version": version,
        "kind": parse_user_data(text),
        "size_bytes": len(text.encode()),
    }
    kind = ChangeKind.TENANT_USER_DATA_SET
    if ask.dry_run:
        return await ask.parts.works.submit_change(ask, kind, row.name, row.name, arguments)
    ask.parts.works.reserve_place(ask, kind).close()  # refused before anything is sealed
    request = ChangeRequest(
        kind=kind, subject=row.name, arguments=arguments, asked_by="", asked_at=ask.now
    )
    await require_scope(ask, request)
    vault = get_vault(ask.parts)
    sealed = name_user_data(row.name, version)
    await vault.put(sealed, row.name, Secret(text))
    try:
        return await ask.parts.works.submit_change(ask, kind, row.name, row.name, arguments)
    except Refused:  # it was not recorded, or it ended
        await vault.remove(sealed)
        raise


async def delete_user_data(ask: Ask) -> Reply:
    row = await ask.read_tenant()
    if row.user_data is None:
        raise refuse_missing("user data of this tenant")
    arguments = {"version": row.user_data.version}
    kind = ChangeKind.TENANT_USER_DATA_REMOVE
    return await ask.parts.works.submit_change(ask, kind, row.name, row.name, arguments)


async def set_user_data(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Put a sealed user data in force, and remove the former one from the vault."""
    row = await _find(parts, asked.subject)
    version = str(asked.arguments["version"])
    sealed = name_user_data(asked.subject, version)
    if (refused := _object(parts, asked.subject, row)) is not None or row is None:
        await get_vault(parts).remove(sealed)
        assert refused is not None
        return refused
    if await get_vault(parts).current(sealed) is None:
        return build_objection(row.name, "its text is no longer in the vault", "Send it anew.")
    data = TenantUserData(
        version=version,
        kind=str(asked.arguments["kind"]),
        size_bytes=int(asked.arguments["size_bytes"]),
        set_by=asked.asked_by,
        set_at=parts.clock.now(),
    )
    answer = await parts.keeper.keep_user_data(row.name, data, by=asked.asked_by)
    if answer.blockers:
        await get_vault(parts).remove(sealed)
        return build_failure(*answer.blockers)
    if row.user_data is not None and row.user_data.version != version:
        await get_vault(parts).remove(name_user_data(row.name, row.user_data.version))
    return Outcome(RequestState.DONE, {"tenant": row.name, "version": version})


async def remove_user_data(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Remove the record of a tenant's user data, then its text from the vault."""
    row = await _find(parts, asked.subject)
    version = str(asked.arguments["version"])
    if row is None or row.user_data is None or row.user_data.version != version:
        detail = "this user data is not in force any more"
        return build_objection(asked.subject, detail, "Look at it, then ask again.")
    answer = await parts.keeper.keep_user_data(row.name, None, by=asked.asked_by)
    if answer.blockers:
        return build_failure(*answer.blockers)
    await get_vault(parts).remove(name_user_data(row.name, version))
    return Outcome(RequestState.DONE, {"tenant": row.name})


async def delete_tenant(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Delete a tenant as `tenants.change_tenant` does, then its user data from the vault."""
    row = await _find(parts, asked.subject)
    outcome = await tenants.change_tenant(parts, asked)
    if outcome.state is RequestState.FAILED or row is None or row.user_data is None:
        return outcome
    await get_vault(parts).remove(name_user_data(row.name, row.user_data.version))
    return outcome


async def _find(parts: ApiParts, name: str) -> Tenant | None:
    return next((t for t in await parts.store.tenants.list() if t.name == name), None)


def _object(parts: ApiParts, name: str, row: Tenant | None) -> Outcome | None:
    """Return why a tenant gets no user data; None: it may have one."""
    if row is None:
        return build_objection(name, "there is no such tenant", "Look at the list.")
    if parts.settings.handover_login != "remove":
        detail = "this site's login stays in tenants' systems (`handover_login: keep`)"
        unblock = "Set `handover_login: remove`: user data runs where the daemon does not."
        return build_objection(name, detail, unblock)
    return None


async def foresee_setting(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return which nodes would get the user data."""
    refused = _object(parts, asked.subject, await _find(parts, asked.subject))
    if refused is not None:
        return Forecast((), refused.blockers)
    size = asked.arguments["size_bytes"]
    kind = asked.arguments["kind"]
    line = f"Nodes that {asked.subject} gets from then on run this {kind} of {size} bytes"
    return Forecast((f"{line} at their first boot. Nodes that it has stay as they are.",))


async def foresee_removal(_parts: ApiParts, asked: ChangeRequest) -> Forecast:
    return Forecast((f"Nodes that {asked.subject} gets from then on have no user data.",))


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        PATH,
        "show_user_data",
        TAG,
        "Show the record of a tenant's user data; its text is never shown.",
        ANYBODY,
        show_user_data,
        {200: UserDataView},
    ),
    Route(
        "PUT",
        PATH,
        "set_user_data",
        TAG,
        "Set the user data of a tenant: its next nodes carry it out at their first boot.",
        OPERATORS_AND_TENANTS,
        put_user_data,
        _ASKED,
        effect=Effect.LASTING,
        body=NewUserData,
        example={"user_data": "#cloud-config\npackages: [htop]\n"},
    ),
    Route(
        "DELETE",
        PATH,
        "remove_user_data",
        TAG,
        "Remove the user data of a tenant; nodes that it has already stay as they are.",
        OPERATORS_AND_TENANTS,
        delete_user_data,
        _ASKED,
        effect=Effect.LASTING,
    ),
)
