"""The specifications of the three custom resources, as the API server stores them.

The schemas of the custom resource definitions in the Helm chart say the same; a test compares them.
Values that the daemon checks (a policy, a prefix, an expression) are only typed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from provisioner.model.base import Record

GROUP = "provisioner.internal"  # .internal is reserved for private use: no one else's name
VERSION = "v1alpha1"
NAME_MAX = 63
NODES_MAX = 1_000_000


class SpecRecord(Record):
    """A part of a specification; its fields have camel case in Kubernetes."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class DeletionPolicy(StrEnum):
    """The fate of the daemon's record when the resource is deleted."""

    DELETE = "Delete"  # the tenant is deleted; a campaign under way is aborted
    RETAIN = "Retain"  # it stays as it is


class UnitSpec(SpecRecord):
    """A scalable unit."""

    pod: int = Field(ge=0)
    unit: int = Field(ge=0)


class SessionSpec(SpecRecord):
    """A BGP session of a tenant to the outside."""

    switch: str
    peer: str
    remote_as: int = Field(ge=1, le=4_294_967_295)
    accepts: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    accepts_parts: bool = False
    communities: tuple[str, ...] = ()
    prefixes_max: int | None = Field(default=None, ge=1, le=4_294_967_295)


class QuotaSpec(SpecRecord):
    """The limits of a tenant; without a number there is none."""

    nodes: int | None = Field(default=None, ge=0)
    gpus: int | None = Field(default=None, ge=0)
    prefixes: int | None = Field(default=None, ge=0)


class TenantSpec(SpecRecord):
    """A tenant. Without `nodes` it gets the sum of its claims."""

    vrf: str | None = Field(default=None, max_length=64)
    nodes: int | None = Field(default=None, ge=0, le=NODES_MAX)
    units: tuple[UnitSpec, ...] = ()
    picked: tuple[str, ...] = ()
    spread: bool = False
    outside: tuple[SessionSpec, ...] = ()
    storage: tuple[str, ...] = ()
    quota: QuotaSpec = QuotaSpec()
    namespaces: tuple[str, ...] = ()  # whose claims count; (): no namespace's
    deletion_policy: DeletionPolicy = DeletionPolicy.DELETE

    def build_body(self) -> Mapping[str, Any]:
        """Return all fields but `nodes` as the API has them; without a VRF the daemon names it."""
        return {
            **({"vrf": self.vrf} if self.vrf else {}),
            "units": sorted([u.pod, u.unit] for u in set(self.units)),
            "picked": sorted(set(self.picked)),
            "spread": self.spread,
            "outside": [s.model_dump(mode="json") for s in self.outside],
            "storage": sorted(set(self.storage)),
            "quota": self.quota.model_dump(mode="json"),
        }


class CampaignRun(StrEnum):
    """The state that a campaign should be in."""

    DRAFT = "Draft"
    RUNNING = "Running"
    PAUSED = "Paused"
    ABORTED = "Aborted"


class CampaignSpec(SpecRecord):
    """A campaign. Release, selection and policy never change once it is made."""

    release: str = Field(min_length=1, max_length=128)
    select: str = Field(min_length=1, max_length=2000)
    policy: Mapping[str, Any] | None = None
    run: CampaignRun = CampaignRun.DRAFT
    confirm: tuple[str, ...] = ()  # one-way steps that a person agreed to
    deletion_policy: DeletionPolicy = DeletionPolicy.DELETE


class NodeClaimSpec(SpecRecord):
    """A number of a tenant's nodes for one namespace."""

    tenant: str = Field(min_length=1, max_length=NAME_MAX)
    nodes: int = Field(ge=0, le=NODES_MAX)


SPECS: Mapping[str, type[SpecRecord]] = {
    "tenants": TenantSpec,
    "campaigns": CampaignSpec,
    "nodeclaims": NodeClaimSpec,
}


S = TypeVar("S", bound=SpecRecord)


class BadSpec(Exception):
    """A specification that cannot be used; the message says which field and why."""


def read_spec(kind: type[S], spec: Mapping[str, Any]) -> S:
    """Return a specification as a record. Raises BadSpec."""
    try:
        return kind.model_validate(dict(spec), strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "spec"
        raise BadSpec(f"spec.{field}: {first['msg']}") from None
