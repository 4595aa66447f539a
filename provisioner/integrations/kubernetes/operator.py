"""The operator: the objects that Kopf watches, and their handlers.

Each resource is reconciled when it appears or changes, and every `every_s` after that, so that
drift at the daemon is found. One object has one reconciliation at a time; claims of one tenant
share a lock, because they share its nodes. One operator runs at a time (`replicas: 1`, replaced
before it is started anew): claims are shared out in its memory.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import kopf

from provisioner.integrations.kubernetes.api_client import ApiClient, NoAnswer
from provisioner.integrations.kubernetes.campaign_reconciliation import (
    reconcile_campaign,
    remove_campaign,
)
from provisioner.integrations.kubernetes.claim_reconciliation import reconcile_claim, release_claim
from provisioner.integrations.kubernetes.claim_sharing import Claim
from provisioner.integrations.kubernetes.conditions import (
    Outcome,
    Refusal,
    build_status,
    refuse,
    report_unknown,
)
from provisioner.integrations.kubernetes.specs import (
    GROUP,
    VERSION,
    BadSpec,
    CampaignSpec,
    DeletionPolicy,
    NodeClaimSpec,
    TenantSpec,
    read_spec,
)
from provisioner.integrations.kubernetes.tenant_reconciliation import (
    reconcile_tenant,
    remove_tenant,
)

FINALIZER = f"{GROUP}/finalizer"
EVERY_S = 30.0  # between two looks at an object without a change
RETRY_S = 15.0  # of a deletion that has to wait

Reconcile = Callable[[], Awaitable[Outcome]]


@dataclass(frozen=True)
class Watched:
    """One object as Kopf shows it."""

    uid: str
    name: str
    namespace: str
    generation: int
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    created: str
    leaving: bool


class Operator:
    """The reconciliations of one cluster; `build_registry` gives them to Kopf."""

    def __init__(self, api: ApiClient, every_s: float = EVERY_S, retry_s: float = RETRY_S) -> None:
        self._api = api
        self._every_s = every_s
        self._retry_s = retry_s
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tenants: dict[str, TenantSpec] = {}  # by name, as last watched
        self._claims: dict[str, Claim] = {}  # by uid, newer than the API server's view
        self._leaving: set[str] = set()  # uids: a look that began before brings nothing back

    def build_registry(self) -> kopf.OperatorRegistry:
        """Return the handlers of the three kinds."""
        registry = kopf.OperatorRegistry()
        self._register(registry, "tenants", self._bring_tenant, self._remove_tenant)
        self._register(registry, "campaigns", self._bring_campaign, self._remove_campaign)
        self._register(registry, "nodeclaims", self._bring_claim, self._release_claim)
        for plural, learn in (("tenants", self._know_tenant), ("nodeclaims", self._know_claim)):
            # an index: Kopf fills it from all objects before any handler runs
            kopf.index(GROUP, VERSION, plural, id=f"index-{plural}", registry=registry)(learn)
            kopf.on.event(GROUP, VERSION, plural, id=f"learn-{plural}", registry=registry)(learn)
        return registry

    def _register(
        self,
        registry: kopf.OperatorRegistry,
        plural: str,
        bring: Callable[[Watched], Awaitable[Outcome]],
        remove: Callable[[Watched], Awaitable[Outcome]],
    ) -> None:
        async def look(**kwargs: Any) -> None:
            watched = read_watched(kwargs["body"])
            await self._report(kwargs["patch"], watched, lambda: bring(watched))

        async def end(**kwargs: Any) -> None:
            watched = read_watched(kwargs["body"])
            self._leaving.add(watched.uid)
            outcome = await self._report(kwargs["patch"], watched, lambda: remove(watched))
            if not outcome.gone:
                raise kopf.TemporaryError("it waits; see its conditions", delay=self._retry_s)

        place = (GROUP, VERSION, plural)
        kopf.on.create(*place, id="create", registry=registry)(look)
        kopf.on.update(*place, id="update", field="spec", registry=registry)(look)
        kopf.on.resume(*place, id="resume", registry=registry)(look)
        kopf.on.delete(*place, id="delete", registry=registry)(end)
        kopf.timer(
            *place,
            id="look",
            interval=self._every_s,
            initial_delay=self._every_s,
            registry=registry,
        )(look)

    async def _report(self, patch: kopf.Patch, watched: Watched, reconcile: Reconcile) -> Outcome:
        """Reconcile one object and write the changes of its status."""
        async with self._locks[watched.uid]:
            if not watched.leaving and watched.uid in self._leaving:
                return Outcome((), gone=True)
            try:
                outcome = await reconcile()
            except BadSpec as error:
                unblock = "correct the specification."
                outcome = refuse(Refusal("bad_specification", str(error), unblock))
                if watched.leaving:  # nothing was ever made from it
                    outcome = replace(outcome, gone=True)
            except NoAnswer as error:
                outcome = report_unknown(str(error))
        if not outcome.gone:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            patch.status.update(build_status(watched.status, outcome, watched.generation, now))
        return outcome

    # --- tenants

    async def _know_tenant(self, **kwargs: Any) -> None:
        watched = read_watched(kwargs["body"])
        self._tenants.pop(watched.name, None)
        if kwargs.get("type") != "DELETED":
            try:
                self._tenants[watched.name] = read_spec(TenantSpec, watched.spec)
            except BadSpec:
                return  # its own conditions say so; its claims have no tenant meanwhile

    async def _bring_tenant(self, watched: Watched) -> Outcome:
        spec = read_spec(TenantSpec, watched.spec)
        async with self._locks[f"tenant {watched.name}"]:
            return await reconcile_tenant(self._api, watched.name, spec, watched.status)

    async def _remove_tenant(self, watched: Watched) -> Outcome:
        policy = read_policy(watched.spec)
        async with self._locks[f"tenant {watched.name}"]:
            return await remove_tenant(self._api, watched.name, policy, watched.status)

    # --- campaigns

    async def _bring_campaign(self, watched: Watched) -> Outcome:
        spec = read_spec(CampaignSpec, watched.spec)
        return await reconcile_campaign(
            self._api, watched.name, spec, watched.status, watched.generation
        )

    async def _remove_campaign(self, watched: Watched) -> Outcome:
        policy = read_policy(watched.spec)
        return await remove_campaign(self._api, watched.name, policy, watched.status)

    # --- claims

    async def _know_claim(self, **kwargs: Any) -> None:
        watched = read_watched(kwargs["body"])
        if kwargs.get("type") == "DELETED":
            self._claims.pop(watched.uid, None)
            return
        try:
            claim = build_claim(watched)
        except BadSpec:
            return
        # the last write of this process is newer than the view of the API server here
        last = self._claims.get(watched.uid, claim)
        self._claims[watched.uid] = replace(claim, claimed=last.claimed, nodes=last.nodes)

    async def _bring_claim(self, watched: Watched) -> Outcome:
        return await self._share(watched, reconcile_claim)

    async def _release_claim(self, watched: Watched) -> Outcome:
        return await self._share(watched, release_claim)

    async def _share(self, watched: Watched, act: Callable[..., Awaitable[Outcome]]) -> Outcome:
        claim = build_claim(watched)
        async with self._locks[f"tenant {claim.tenant}"]:
            last = self._claims.get(watched.uid, claim)
            claim = replace(claim, claimed=last.claimed, nodes=last.nodes)
            tenant = self._tenants.get(claim.tenant)
            named = tenant.namespaces if tenant is not None else ()
            others = [
                c
                for c in self._claims.values()
                if c.uid != claim.uid and c.tenant == claim.tenant and c.namespace in named
            ]
            outcome = await act(self._api, claim, others, tenant, watched.status)
            if "claimed" in outcome.fields:
                nodes = tuple(n["name"] for n in outcome.fields["nodes"])
                claim = replace(claim, claimed=outcome.fields["claimed"], nodes=nodes)
            if outcome.gone:
                claim = replace(claim, claimed=0, nodes=())
            self._claims[watched.uid] = claim
            return outcome


def read_watched(body: Mapping[str, Any]) -> Watched:
    """Return an object of the API server."""
    metadata = body["metadata"]
    return Watched(
        uid=str(metadata.get("uid", "")),
        name=str(metadata["name"]),
        namespace=str(metadata.get("namespace", "")),
        generation=int(metadata.get("generation", 0)),
        spec=dict(body.get("spec", {})),
        status=dict(body.get("status", {})),
        created=str(metadata.get("creationTimestamp", "")),
        leaving=bool(metadata.get("deletionTimestamp")),
    )


def read_policy(spec: Mapping[str, Any]) -> DeletionPolicy:
    """Return the deletion policy, also of a specification that is bad otherwise."""
    retained = spec.get("deletionPolicy") == DeletionPolicy.RETAIN.value
    return DeletionPolicy.RETAIN if retained else DeletionPolicy.DELETE


def build_claim(watched: Watched) -> Claim:
    """Return a claim with the nodes that its status lists. Raises BadSpec."""
    spec = read_spec(NodeClaimSpec, watched.spec)
    return Claim(
        uid=watched.uid,
        namespace=watched.namespace,
        name=watched.name,
        tenant=spec.tenant,
        count=spec.nodes,
        created=watched.created,
        claimed=int(watched.status.get("claimed", 0)),
        nodes=tuple(str(n["name"]) for n in watched.status.get("nodes", ())),
        leaving=watched.leaving,
    )


def build_settings() -> kopf.OperatorSettings:
    """Return Kopf's settings: its notes stand in annotations, and our status is ours alone."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.posting.enabled = False  # conditions say it; events would repeat it at each look
    return settings
