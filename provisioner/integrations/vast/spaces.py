"""Spaces on VAST: `ports.storage.Spaces` by VMS.

A space is a tenant of VMS of the same name, an export a view with a policy and a quota of its own.
The policy lists the clients by address, beside the tenant's `client_ip_ranges`: VMS checks those
for virtual IPs of pools that belong to no tenant, the policy everywhere. Both lists are written as
a whole, since the document does not say what removing a part of a range does; the caller holds the
space's turn meanwhile, and what is read back decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from provisioner.integrations.vast import mount_trials
from provisioner.integrations.vast import vms_answers as answers
from provisioner.integrations.vast.vms_calls import Refused, VmsCalls, VmsHttp
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import (
    AddressSet,
    Export,
    SpaceAct,
    SpaceState,
    SpaceVerb,
    describe_set,
    intersect,
    make_set_of,
    subtract,
    unite,
)
from provisioner.ports import Clock, Malformed, Secret
from provisioner.ports.storage import MountTrials
from provisioner.settings import Settings

Row = Mapping[str, Any]
# of every cluster, not to be deleted; resources of no other tenant are its
DEFAULT = "default"


@dataclass(frozen=True)
class _Seen:
    """One reading of VMS: whole lists, so that what is not in them is not there."""

    tenants: Sequence[Row]
    views: Sequence[Row]
    policies: Mapping[int, Row]
    quotas: Sequence[Row]
    pools: Sequence[Row]

    def find(self, space: str) -> Row | None:
        return next((t for t in self.tenants if t.get("name") == space), None)


class VastSpaces:
    """Acts are absolute; each ends with a reading of what it changed."""

    trials: MountTrials = mount_trials

    def __init__(
        self, calls: VmsCalls, pools: Sequence[str], vouched: Collection[str] = ()
    ) -> None:
        """`vouched`: tenants of VMS whose netgroups and host names have no node."""
        self._calls = calls
        self._vouched = frozenset(vouched)
        self._pools = pools

    async def read(self, spaces: Collection[str]) -> Mapping[str, SpaceState] | Blocker:
        seen = await self._look()
        return {space: self._state(space, seen) for space in spaces}

    async def find_names(self, handles: Collection[str]) -> Mapping[str, str] | Blocker:
        seen = await self._look()
        named = {t.get("guid"): answers.read_text(t, "name", "a tenant") for t in seen.tenants}
        return {h: named[h] for h in handles if h in named}

    async def find_admitting(
        self, addresses: Collection[str]
    ) -> Mapping[str, frozenset[str]] | Blocker:
        seen = await self._look()
        owners = {t.get("id"): answers.read_text(t, "name", "a tenant") for t in seen.tenants}
        ranges = {
            t.get("id"): answers.read_ranges(t, f"tenant {owners[t.get('id')]}")
            for t in seen.tenants
        }
        unlisted = make_set_of(addresses)
        for held in ranges.values():
            unlisted = subtract(unlisted, held)
        pooled = {p.get("tenant_id") for p in seen.pools if p.get("enabled") is not False}
        default = {t.get("id") for t in seen.tenants if t.get("name") == DEFAULT} - pooled
        if not unlisted or None not in pooled or DEFAULT in self._vouched:
            default = set()
        # whom no tenant lists may be the default one's at a pool of all: where VAST's text on
        # tenants is read, nothing says that the request is refused
        if (untold := self._find_untold(seen, owners, pooled | default)) is not None:
            return untold
        opened: list[tuple[str, AddressSet]] = []
        for tenant in seen.tenants:
            name = owners[tenant.get("id")]
            held = ranges[tenant.get("id")]
            if tenant.get("id") in pooled | default:  # nobody asks for its ranges there
                for export in self._state(name, seen).exports.values():
                    beside = tenant.get("id") in default
                    held = unite(
                        held, intersect(export.clients, unlisted) if beside else export.clients
                    )
            opened.append((name, held))
        return {
            address: frozenset(n for n, held in opened if intersect(make_set_of([address]), held))
            for address in addresses
        }

    async def apply(self, act: SpaceAct) -> Blocker | None:
        try:
            return await self._apply(act)
        except Refused as refused:
            full = any(word in refused.words.lower() for word in ("capacity", "quota", "exceed"))
            return Blocker(
                reason=Reason.QUOTA if full else Reason.REFUSED,
                subject=f"storage/{act.space}",
                detail=str(refused),
                unblock=_remedy(act, full=full),
            )

    async def close(self) -> None:
        await self._calls.close()

    # --- readings

    async def _look(self) -> _Seen:
        policies = await self._calls.list_all("viewpolicies")
        tenants = await self._calls.list_all("tenants")
        if not tenants:  # "The default tenant cannot be deleted" (VAST, Overview of Tenants)
            raise Malformed("tenants: a list without any, not even the default one")
        return _Seen(
            tenants=tenants,
            views=await self._calls.list_all("views"),
            policies={answers.read_id(p, "a policy"): p for p in policies},
            quotas=await self._calls.list_all("quotas"),
            pools=await self._calls.list_all("vippools"),
        )

    def _find_untold(
        self, seen: _Seen, owners: Mapping[Any, str], by_policy: Collection[Any]
    ) -> Blocker | None:
        """Return why nobody can say whom another tenant serves: hosts by name or netgroup, where
        VMS may ask for nothing but the policy.
        """
        for view in seen.views:
            owner = view.get("tenant_id")
            name = owners.get(owner, "")
            policy = seen.policies.get(answers.read_id(view, "a view", "policy_id"))
            if policy is None:
                raise Malformed(f"a view of tenant {name} has a policy that is in no list")
            if owner not in by_policy or name in self._vouched:
                continue
            named = answers.read_names(policy, f"policy {str(policy.get('name'))[:60]}")
            if named:
                return Blocker(
                    reason=Reason.CANNOT_TELL,
                    subject=f"storage/{name}",
                    detail=f"tenant {name} of VMS serves by policies alone and lets in {named[0]}, "
                    "which may be any node",
                    unblock="Write its clients as addresses in VMS; or, if no node is among them, "
                    f"name it in `storage.options.vouched` ({name}).",
                )
        return None

    def _state(self, space: str, seen: _Seen) -> SpaceState:
        tenant = seen.find(space)
        if tenant is None:
            return SpaceState()
        number = answers.read_id(tenant, f"tenant {space}")
        server = answers.find_server(seen.pools, self._pools, number)
        return answers.read_space(space, tenant, seen.views, seen.policies, seen.quotas, server)

    # --- acts

    async def _apply(self, act: SpaceAct) -> Blocker | None:
        seen = await self._look()
        tenant = seen.find(act.space)
        if act.verb is SpaceVerb.MAKE:
            return await self._make(act, tenant)
        if tenant is None:
            named = {t.get("guid"): str(t.get("name")) for t in seen.tenants}
            if act.handle in named:
                return _other(act, f"it is called {named[act.handle][:60]} now")
            return None if act.verb in _CLOSING else _other(act, "it is gone")
        if answers.read_text(tenant, "guid", f"tenant {act.space}") != act.handle and act.handle:
            return _other(act, "another tenant of VMS has its name")
        steps: Mapping[SpaceVerb, Callable[[SpaceAct, Row, _Seen], Any]] = {
            SpaceVerb.LIMIT: self._limit,
            SpaceVerb.EXPORT: self._export,
            SpaceVerb.ADMIT: self._admit,
            SpaceVerb.EXPEL: self._expel,
            SpaceVerb.UNEXPORT: self._unexport,
            SpaceVerb.REMOVE: self._remove,
        }
        blocker: Blocker | None = await steps[act.verb](act, tenant, seen)
        return blocker or self._prove(act, await self._look())

    async def _make(self, act: SpaceAct, tenant: Row | None) -> Blocker | None:
        if tenant is not None:
            return _other(act, "a tenant of this name is there already")
        body: dict[str, Any] = {"name": act.space, "client_ip_ranges": []}
        if act.encrypted:
            body["encryption_group"] = act.space
        await self._calls.change("POST", "/tenants/", body)
        return self._prove(act, await self._look())

    async def _limit(self, act: SpaceAct, tenant: Row, seen: _Seen) -> None:
        body = {"capacity_rules": {"hard_limit": act.quota_bytes or 0}}  # 0: no limit
        await self._calls.change("PATCH", _path("tenants", tenant), body)

    async def _export(self, act: SpaceAct, tenant: Row, seen: _Seen) -> Blocker | None:
        """Make or change the policy, then the quota, and the view at last."""
        export = act.export
        assert export is not None
        view = _find_view(act.space, export, tenant, seen)
        policy = await self._bring_policy(act, export, tenant, view, seen)
        if isinstance(policy, Blocker):
            return policy
        await self._bring_quota(act, export, tenant, seen)
        wanted = {"policy_id": policy, "protocols": ["NFS", "NFS4"]}
        if view is None:
            if (why := self._find_poolless(tenant, seen)) is not None:
                return why
            body = {
                "name": f"{act.space}.{export.name}",
                "path": export.path,
                "tenant_id": tenant["id"],
                "create_dir": True,
                **wanted,
            }
            await self._calls.change("POST", "/views/", body)
        elif view.get("policy_id") != policy or set(view.get("protocols") or ()) - answers.NFS:
            await self._calls.change("PATCH", _path("views", view), wanted)
        return None

    async def _bring_policy(
        self, act: SpaceAct, export: Export, tenant: Row, view: Row | None, seen: _Seen
    ) -> int | Blocker:
        """Return the id of the export's own policy, which has exactly the act's clients."""
        mine = [
            p
            for p in seen.policies.values()
            if answers.read_rules(act.space, export.name, p) is not None
        ]
        strangers = [p for p in mine if p.get("tenant_id") != tenant["id"]]
        if strangers:
            return _taken(act, f"policy {strangers[0].get('name')} belongs to another tenant")
        name = answers.name_policy(act.space, export)
        body = {"name": name, "flavor": "NFS", **answers.write_lists(export, act.clients)}
        pools = [p["id"] for p in seen.pools if p.get("name") in self._pools]
        if pools:
            body["vip_pools"] = pools
        if not mine:
            body["tenant_id"] = tenant["id"]
            await self._calls.change("POST", "/viewpolicies/", body)
            made = await self._calls.list_all("viewpolicies", tenant_id=tenant["id"])
            mine = [p for p in made if p.get("name") == name]
            if len(mine) != 1:
                return _other(act, f"policy {name} is not in the list after it was made")
        else:
            await self._calls.change("PATCH", _path("viewpolicies", mine[0]), body)
        return answers.read_id(mine[0], "a policy")

    async def _bring_quota(self, act: SpaceAct, export: Export, tenant: Row, seen: _Seen) -> None:
        quota = _find_quota(export.path, tenant, seen)
        if quota is None and export.quota_bytes is not None:
            body = {
                "name": f"{act.space}.{export.name}",
                "path": export.path,
                "tenant_id": tenant["id"],
                "hard_limit": export.quota_bytes,
                "create_dir": True,
            }
            await self._calls.change("POST", "/quotas/", body)
        elif quota is not None and export.quota_bytes is None:
            await self._calls.change("DELETE", _path("quotas", quota))
        elif quota is not None and quota.get("hard_limit") != export.quota_bytes:
            body = {"hard_limit": export.quota_bytes}
            await self._calls.change("PATCH", _path("quotas", quota), body)

    async def _admit(self, act: SpaceAct, tenant: Row, seen: _Seen) -> Blocker | None:
        """Let clients into every policy, one request each, and into the tenant at last."""
        for view, policy in _views_of(tenant, seen):
            export = answers.name_of_view(act.space, view)
            rules = answers.read_rules(act.space, export, policy)
            if rules is None:
                return _taken(act, f"view {export} has a policy that is not its own")
            held = answers.read_policy(policy, f"policy of {act.space}/{export}")[0]
            if subtract(act.clients, held):
                body = answers.write_lists(rules, unite(held, act.clients))
                await self._calls.change("PATCH", _path("viewpolicies", policy), body)
        held = answers.read_ranges(tenant, f"tenant {act.space}")
        if subtract(act.clients, held):
            await self._write_ranges(tenant, unite(held, act.clients))
        return None

    async def _expel(self, act: SpaceAct, tenant: Row, seen: _Seen) -> None:
        """Take clients out of the tenant first, then out of every policy, one request each."""
        held = answers.read_ranges(tenant, f"tenant {act.space}")
        if intersect(held, act.clients):
            await self._write_ranges(tenant, subtract(held, act.clients))
        done = set()
        for _, policy in _views_of(tenant, seen):
            what = f"policy {policy.get('name')}"
            lists = answers.expel_lists(policy, act.clients, what)
            same = all(_same_hosts(policy.get(name), hosts) for name, hosts in lists.items())
            if not same and policy["id"] not in done:
                await self._calls.change("PATCH", _path("viewpolicies", policy), lists)
            done.add(policy["id"])

    async def _unexport(self, act: SpaceAct, tenant: Row, seen: _Seen) -> None:
        """Remove view, quota and policy; the directory and its files stay."""
        export = act.export
        assert export is not None
        view = _find_view(act.space, export, tenant, seen)
        if view is not None:
            await self._calls.change("DELETE", _path("views", view))
        quota = _find_quota(export.path, tenant, seen)
        if quota is not None and quota.get("name") == f"{act.space}.{export.name}":
            await self._calls.change("DELETE", _path("quotas", quota))
        for policy in seen.policies.values():
            own = answers.read_rules(act.space, export.name, policy) is not None
            if own and policy.get("tenant_id") == tenant["id"]:
                await self._calls.change("DELETE", _path("viewpolicies", policy))

    async def _remove(self, act: SpaceAct, tenant: Row, seen: _Seen) -> None:
        """Remove the tenant without `force_remove`: VMS refuses while files are in it."""
        await self._calls.change("DELETE", _path("tenants", tenant))

    async def _write_ranges(self, tenant: Row, clients: AddressSet) -> None:
        body = {"client_ip_ranges": answers.write_ranges(clients)}
        await self._calls.change("PATCH", _path("tenants", tenant), body)

    def _find_poolless(self, tenant: Row, seen: _Seen) -> Blocker | None:
        number = answers.read_id(tenant, "a tenant")
        if answers.find_server(seen.pools, self._pools, number):
            return None
        name = str(tenant.get("name"))
        wanted = ", ".join(self._pools) or "any"
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=f"storage/{name}",
            detail=f"no enabled virtual IP pool ({wanted}) serves the tenant",
            unblock="Enable a pool that belongs to no tenant or to this one, and name it in "
            "`storage.pools`.",
        )

    # --- proofs

    def _prove(self, act: SpaceAct, seen: _Seen) -> Blocker | None:
        """Return what the reading after an act shows of it that is not as asked."""
        tenant = seen.find(act.space)
        if act.verb is SpaceVerb.REMOVE:
            return None if tenant is None else _unproved(act, "the tenant is still there")
        if tenant is None:
            return _unproved(act, "the tenant is not there")
        state = self._state(act.space, seen)
        export = None if act.export is None else state.exports.get(act.export.name)
        match act.verb:
            case SpaceVerb.MAKE:
                wrong = state.encrypted != act.encrypted
                return _unproved(act, "it is not encrypted as asked") if wrong else None
            case SpaceVerb.LIMIT:
                wrong = state.quota_bytes != act.quota_bytes
                return _unproved(act, f"its limit is {state.quota_bytes}") if wrong else None
            case SpaceVerb.UNEXPORT:
                return None if export is None else _unproved(act, f"{export.name} is still there")
            case SpaceVerb.EXPORT:
                if export is None or export.clients != act.clients or export.foreign:
                    return _unproved(act, "the export does not have its rules")
            case SpaceVerb.ADMIT:
                missing = subtract(act.clients, state.clients)
                for one in state.exports.values():
                    missing = unite(missing, subtract(act.clients, one.clients))
                if missing:
                    return _unproved(act, f"{describe_set(missing)} is not let in")
            case SpaceVerb.EXPEL:
                held = intersect(act.clients, state.clients)
                for one in state.exports.values():
                    held = unite(held, intersect(act.clients, one.clients))
                if held:
                    return _unproved(act, f"{describe_set(held)} is still let in")
        return None


_CLOSING = (SpaceVerb.EXPEL, SpaceVerb.UNEXPORT, SpaceVerb.REMOVE)


def _path(noun: str, row: Row) -> str:
    return f"/{noun}/{quote(str(answers.read_id(row, noun)))}/"


def _find_view(space: str, export: Export, tenant: Row, seen: _Seen) -> Row | None:
    mine = [v for v in seen.views if v.get("tenant_id") == tenant["id"]]
    named = [v for v in mine if answers.name_of_view(space, v) == export.name]
    at = (v for v in named or mine if answers.read_path(v, "a view") == export.path)
    return next(at, None)


def _find_quota(path: str, tenant: Row, seen: _Seen) -> Row | None:
    mine = [q for q in seen.quotas if q.get("tenant_id") == tenant["id"]]
    at = [q for q in mine if answers.read_path(q, "a quota") == path]
    return min(at, key=lambda q: len(str(q.get("path"))), default=None)


def _views_of(tenant: Row, seen: _Seen) -> list[tuple[Row, Row]]:
    mine = [v for v in seen.views if v.get("tenant_id") == tenant["id"]]
    return [(v, seen.policies[v["policy_id"]]) for v in mine if v.get("policy_id") in seen.policies]


def _same_hosts(held: object, wanted: Sequence[str]) -> bool:
    return sorted(held if isinstance(held, list) else []) == sorted(wanted)


def _blocker(reason: Reason, act: SpaceAct, detail: str, unblock: str) -> Blocker:
    return Blocker(
        reason=reason, subject=f"storage/{act.space}", detail=detail[:300], unblock=unblock
    )


def _other(act: SpaceAct, detail: str) -> Blocker:
    unblock = "Look at the tenant in VMS; it is read again and decided upon by itself."
    return _blocker(Reason.PRECONDITION, act, detail, unblock)


def _taken(act: SpaceAct, detail: str) -> Blocker:
    return _blocker(Reason.DUPLICATE, act, detail, "Rename or remove it in VMS.")


def _unproved(act: SpaceAct, detail: str) -> Blocker:
    words = f"VMS took the request ({act.verb}), and a reading shows: {detail}"
    return _blocker(Reason.CANNOT_TELL, act, words, "It is read and tried again by itself.")


def _remedy(act: SpaceAct, *, full: bool) -> str:
    if full:
        return "Make room on the cluster or in the tenant, then settle the tenant again."
    if act.verb is SpaceVerb.REMOVE:
        return (
            "Remove the files of the tenant in VMS, which the daemon never does; then it goes on "
            "by itself."
        )
    return "Look at the tenant in VMS; it is tried again by itself."


@asynccontextmanager
async def open_spaces(
    settings: Settings, secret: Secret, clock: Clock, ca_file: Path | None
) -> AsyncIterator[VastSpaces]:
    """Yield the spaces of the VMS that the settings name, and close its connections at the end."""
    system = settings.storage
    assert system is not None
    limits = {"task_limit_s": settings.storage_limit_s, "poll_s": settings.storage_poll_s}
    calls = VmsCalls(VmsHttp(system, ca_file), system.username, secret, clock, **limits)
    spaces = VastSpaces(calls, system.pools, system.options.get("vouched", "").split())
    try:
        yield spaces
    finally:
        await spaces.close()
