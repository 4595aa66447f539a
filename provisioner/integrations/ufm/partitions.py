"""InfiniBand partitions: those that UFM lists, the desired ones, and the requests in between. Pure.

A P_Key separates only if the default partition does not connect. All ports are in it, by UFM's own
manual with full membership unless that was changed. As long as a port is a full member of it, or
its membership is not listed, no port is placed into a tenant's partition.

Source: UFM Enterprise REST API guide, "PKey GUIDs REST API"; UFM user manual, "Partitioning". The
subnet manager's keys: `GET /app/smconf`, as NVIDIA's infra-controller reads it (crates/ib-fabric).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from provisioner.model.integrations.partition import ListedPartition, SubnetKeys
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, PKEY_MAINTENANCE, PKEYS, Phase, Tenant

DEFAULT = 0x7FFF
PARTITIONS_MAX = 0x7FFF
_PKEY = re.compile(r"0x[0-9a-f]{1,4}", re.IGNORECASE)
_KEY = re.compile(r"(?:0x)?[0-9a-f]{1,16}", re.IGNORECASE)
_GUID = re.compile(r"(?:0x)?([0-9a-f]{16})", re.IGNORECASE)


@dataclass(frozen=True)
class Partition:
    """One partition: GUID -> "full" or "limited"."""

    pkey: int
    members: Mapping[str, str]


@dataclass(frozen=True)
class Act:
    """One request. "add" without GUIDs makes an empty partition."""

    verb: Literal["add", "remove", "delete"]
    pkey: int
    guids: tuple[str, ...] = ()

    def __str__(self) -> str:
        ports = f" {len(self.guids)} ports: {', '.join(self.guids[:4])}" if self.guids else ""
        return f"{self.verb} P_Key {self.pkey:#06x}{ports}"


def read_guid(text: object) -> str | None:
    """Return a port's GUID as 16 lowercase hexadecimal digits; None for any other value."""
    match = _GUID.fullmatch(text) if isinstance(text, str) else None
    return match[1].lower() if match else None


def read_partitions(answer: Any) -> dict[int, Partition] | str:
    """Return the partitions of `GET /resources/pkeys?guids_data=true`, or why they cannot be read.

    One unreadable member makes the whole answer unreadable, because a port that is not listed would
    count as isolated.
    """
    if not isinstance(answer, dict) or len(answer) > PARTITIONS_MAX:
        return "the list of P_Keys is not an object"
    partitions: dict[int, Partition] = {}
    for key, entry in answer.items():
        if not _PKEY.fullmatch(key) or not isinstance(entry, dict):
            return f"{key!r:.20} is no P_Key with its partition"
        listed = entry.get("guids", [])
        if not isinstance(listed, list):
            return f"P_Key {key}: its ports are not a list"
        pkey = int(key, 16) & DEFAULT  # the highest bit is the membership, not part of the key
        members = dict(partitions[pkey].members) if pkey in partitions else {}
        for one in listed:
            guid = read_guid(one.get("guid")) if isinstance(one, dict) else None
            membership = one.get("membership") if isinstance(one, dict) else None
            if guid is None or membership not in ("full", "limited"):
                return f"P_Key {key}: a port without readable GUID and membership"
            members[guid] = membership
        partitions[pkey] = Partition(pkey, members)
    return partitions


def read_subnet_keys(answer: Any) -> SubnetKeys | str:
    """Return how the subnet manager is protected, of `GET /app/smconf`, or why it is unreadable."""
    key = answer.get("m_key") if isinstance(answer, dict) else None
    per_port = answer.get("m_key_per_port") if isinstance(answer, dict) else None
    if not isinstance(key, str) or not _KEY.fullmatch(key) or not isinstance(per_port, bool):
        return "the subnet manager's configuration has no readable M_Key"
    return SubnetKeys(management=int(key, 16) != 0, per_port=per_port)


def list_partitions(
    tenants: Sequence[Tenant], seen: Mapping[int, Partition]
) -> tuple[ListedPartition, ...]:
    """Return every partition but the default one, with the tenant that its P_Key was given to."""
    names = _names(tenants)
    owners = {t.pkey: t.name for t in tenants if t.pkey in PKEYS}
    return tuple(
        ListedPartition(
            pkey=f"{pkey:#06x}",
            tenant=owners.get(pkey, ""),
            vrf=names.get(pkey, ""),
            ports=len(partition.members),
        )
        for pkey, partition in sorted(seen.items())
        if pkey != DEFAULT
    )


def plan_partitions(
    tenants: Sequence[Tenant], seen: Mapping[int, Partition]
) -> tuple[Act, ...] | Blocker:
    """Return the partitions to make and to delete; () if all are as desired.

    UFM removes a partition with its last member (NVIDIA's own stand-in for UFM does so too), so a
    partition that was made before may be missing: it is made again with the next member.
    """
    requests = []
    for tenant in tenants:
        if tenant.number is None:
            continue
        if tenant.pkey not in PKEYS or tenant.pkey == PKEY_MAINTENANCE:
            detail = f"P_Key {tenant.pkey:#x} is outside of what UFM takes, or ours"
            return _no(Reason.QUOTA, tenant.name, detail, "Delete a tenant with a lower number.")
        present = seen.get(tenant.pkey)
        if tenant.phase is Phase.MAKING and present is None:
            requests.append(Act("add", tenant.pkey))
        if tenant.phase is Phase.LEAVING and present is not None:
            if present.members:
                detail = f"{len(present.members)} ports are in it"
                remedy = "Reclaim the nodes; it is removed when no port is in it."
                return _no(Reason.ISOLATION, f"P_Key {tenant.pkey:#06x}", detail, remedy)
            requests.append(Act("delete", tenant.pkey))
    return tuple(requests)


def list_networks(
    guids: Iterable[str], tenants: Sequence[Tenant], seen: Mapping[int, Partition]
) -> dict[str, frozenset[str]]:
    """Return the networks of each port except the default partition; "0x1234" for a foreign one.

    A limited member counts, because it reaches every full one.
    """
    names = _names(tenants)
    return {
        guid: frozenset(
            names.get(pkey, f"{pkey:#06x}")
            for pkey, partition in seen.items()
            if pkey != DEFAULT and guid in partition.members
        )
        for guid in guids
    }


def list_members(
    tenants: Sequence[Tenant], seen: Mapping[int, Partition]
) -> dict[str, frozenset[str]]:
    """Return the names of the networks of every member, as `networks` does for chosen ones."""
    names = _names(tenants)
    networks: dict[str, set[str]] = {}
    for pkey, partition in seen.items():
        if pkey != DEFAULT:
            for guid in partition.members:
                networks.setdefault(guid, set()).add(names.get(pkey, f"{pkey:#06x}"))
    return {guid: frozenset(held) for guid, held in networks.items()}


def plan_placing(
    guids: Sequence[str], vrf: str, tenants: Sequence[Tenant], seen: Mapping[int, Partition]
) -> tuple[Act, ...] | Blocker:
    """Return the requests that move ports into one partition and out of every other.

    Removal comes first. For maintenance, a port is removed from every other partition. For a
    tenant, a foreign partition is a blocker, because its purpose is not recorded.
    """
    target = next((pkey for pkey, name in _names(tenants).items() if name == vrf), None)
    if target is None:
        return _no(Reason.NOT_EXPECTED, vrf, "no tenant has this name", "Create the tenant first.")
    ports = tuple(sorted(set(guids)))
    out = []
    names = _names(tenants)
    for pkey in sorted(set(seen) - {target, DEFAULT}):
        inside = tuple(g for g in ports if g in seen[pkey].members)
        if inside and pkey not in names and vrf != MAINTENANCE_VRF:
            detail = f"{inside[0]} is in P_Key {pkey:#06x}, which is no tenant's"
            return _no(Reason.ISOLATION, inside[0], detail, "Bring the node to maintenance first.")
        if inside:
            out.append(Act("remove", pkey, inside))
    members = seen[target].members if target in seen else {}
    into = tuple(g for g in ports if members.get(g) != "full")
    return (*out, Act("add", target, into)) if into else tuple(out)


def find_default_connection(
    guids: Sequence[str], seen: Mapping[int, Partition], *, limited: bool
) -> Blocker | None:
    """Return why the default partition joins these ports with others; None if it provably does not.

    `limited`: a person confirmed that the default membership is limited, for a UFM that lists no
    members of that partition.
    """
    default = seen.get(DEFAULT)
    members = default.members if default else {}
    full = [g for g in guids if members.get(g) == "full"]
    remedy = "Make the default partition's membership limited (`ib partition management defmember`)"
    if full:
        detail = f"{len(full)} ports are full members of the default partition, as is every other"
        return _no(Reason.ISOLATION, full[0], detail, f"{remedy}.")
    if not limited and any(g not in members for g in guids):
        detail = "the ports' membership in the default partition is unknown"
        return _no(Reason.CANNOT_TELL, "P_Key 0x7fff", detail, f"{remedy}, and say so.")
    return None


def is_so(act: Act, seen: Mapping[int, Partition]) -> bool:
    """Return whether the observed partitions have the result of a request."""
    present = seen.get(act.pkey)
    if act.verb == "delete":
        return present is None
    members = {} if present is None else present.members
    if act.verb == "remove":
        return not any(guid in members for guid in act.guids)
    return present is not None and all(members.get(guid) == "full" for guid in act.guids)


def _names(tenants: Sequence[Tenant]) -> dict[int, str]:
    """Return the networks by P_Key: of tenants that were made here, and of those on the list."""
    named = {t.pkey: t.vrf for t in tenants if t.pkey in PKEYS}
    return {**named, PKEY_MAINTENANCE: MAINTENANCE_VRF}


def _no(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
