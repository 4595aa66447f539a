"""Routes of shared storage: what it has for tenants, and how that differs from their records."""

from __future__ import annotations

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import refuse_blocked, refuse_missing
from provisioner.api.route import ANYBODY, VIEWERS, Route
from provisioner.execution.tenancy.spaces import StandingSpace
from provisioner.model.base import Record
from provisioner.model.outcome import Blocker
from provisioner.model.storage import SeenExport, count_addresses
from provisioner.planning.tenancy.storage import describe_act


class SpaceExport(Record):
    """One export of a tenant's space, as its storage has it."""

    name: str
    path: str = Field(description="Directory in the tenant's own name space.")
    mount: str = Field(description="What a node mounts; empty: it is not known.")
    read_only: bool | None = Field(description="Whether nodes cannot write; null: not all alike.")
    root_squash: bool | None = Field(
        description="Whether root of a node is nobody there; null: not all alike."
    )
    clients: int = Field(description="Addresses that its own rules admit.")
    quota_bytes: int | None = Field(description="Most that it holds; null: no limit.")
    used_bytes: int | None = Field(description="Bytes in it; null: the storage does not say.")


class SpaceView(Record):
    """A tenant's space on shared storage, read now and compared with its record."""

    tenant: str
    space: str = Field(description="Name of the space on the storage; empty: there is none.")
    clients: tuple[str, ...] = Field(description="Ranges of addresses that it admits.")
    exports: tuple[SpaceExport, ...] = Field(description="What it exports, by name.")
    quota_bytes: int | None = Field(description="Most that all of it holds; null: no limit.")
    encrypted: bool = Field(description="Whether its data are encrypted by keys of its own.")
    foreign: tuple[str, ...] = Field(description="What others than the daemon changed in it.")
    steps: tuple[str, ...] = Field(description="Acts that would bring it to its record.")
    blockers: tuple[Blocker, ...]


class SpaceList(Record):
    """All tenants' spaces, by name."""

    items: tuple[SpaceView, ...]


async def show(ask: Ask) -> Reply:
    """Return one tenant's space, as the storage has it now."""
    tenant = await ask.read_tenant()
    standing = await ask.parts.keeper.read_storage(tenant.name)
    if isinstance(standing, Blocker):
        raise refuse_blocked((standing,))
    if not standing:
        raise refuse_missing(f"shared storage of tenant {tenant.name}")
    return Reply(_view(standing[0]))


async def list_spaces(ask: Ask) -> Reply:
    """Return every tenant's space, as the storage has it now."""
    standing = await ask.parts.keeper.read_storage()
    if isinstance(standing, Blocker):
        raise refuse_blocked((standing,))
    if standing is None:
        raise refuse_missing("shared storage")
    return Reply(SpaceList(items=tuple(_view(one) for one in standing)))


def _view(standing: StandingSpace) -> SpaceView:
    state = standing.state
    plan = standing.plan
    return SpaceView(
        tenant=standing.tenant,
        space=standing.space if state.handle else "",
        clients=tuple(str(r) for r in state.clients),
        exports=tuple(_view_export(e) for _, e in sorted(state.exports.items())),
        quota_bytes=state.quota_bytes,
        encrypted=state.encrypted,
        foreign=tuple(f"{h.subject}: {h.detail}" for h in plan.foreign),
        steps=tuple(describe_act(a) for a in plan.acts),
        blockers=plan.blockers,
    )


def _view_export(export: SeenExport) -> SpaceExport:
    return SpaceExport(
        name=export.name,
        path=export.path,
        mount=export.mount,
        read_only=export.read_only,
        root_squash=export.root_squash,
        clients=count_addresses(export.clients),
        quota_bytes=export.quota_bytes,
        used_bytes=export.used_bytes,
    )


_REFUSED = {404: "There is no such storage.", 503: "The storage does not answer."}
ROUTES = (
    Route(
        "GET",
        "/storage",
        "check_storage",
        "tenants",
        "Compare every tenant's space on shared storage with its record.",
        VIEWERS,
        list_spaces,
        {200: SpaceList},
        refusals=_REFUSED,
        heavy=True,
    ),
    Route(
        "GET",
        "/tenants/{tenant}/storage",
        "show_storage",
        "tenants",
        "Show a tenant's shared storage, and the acts that would bring it to its record.",
        ANYBODY,
        show,
        {200: SpaceView},
        refusals=_REFUSED,
        heavy=True,
    ),
)
