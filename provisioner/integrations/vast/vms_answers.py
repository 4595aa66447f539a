"""Objects of VMS as a space: what is read from tenants, view policies, views and quotas. Pure.

Every answer is hostile until it is read here: a list of hosts with an entry that cannot be read
makes the whole answer `Malformed`, since such an entry may be anybody. Fields and their meaning:
the OpenAPI document named in `vms_calls.py` (schemas Tenant, ViewPolicy, View, Quota, VIPPool).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provisioner.model.storage import (
    AddressRange,
    AddressSet,
    Export,
    SeenExport,
    SpaceState,
    intersect,
    make_set,
    subtract,
    unite,
)
from provisioner.ports import Malformed

HOSTS_MAX = 100_000  # entries of one list
NFS = frozenset({"NFS", "NFS4"})
EVERYBODY = tuple(
    AddressRange(str(network[0]), str(network[-1]))
    for network in (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
)
READ_WRITE = "nfs_read_write"
READ_ONLY = "nfs_read_only"
ROOT_SQUASH = "nfs_root_squash"
NO_SQUASH = "nfs_no_squash"
# every list of a policy that lets somebody in, with what it opens beside NFS; a policy of ours has
# nobody in these
OTHER_LISTS = {
    "nfs_all_squash": "",
    "smb_read_write": "SMB",
    "smb_read_only": "SMB",
    "s3_read_write": "S3",
    "s3_read_only": "S3",
    "trash_access": "the trash folder",
}
_WILDCARD = re.compile(r"(\d{1,3}|\*)(\.(\d{1,3}|\*)){3}")
Row = Mapping[str, Any]


def read_text(row: Row, name: str, what: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value or len(value) > 1024 or not value.isprintable():
        raise Malformed(f"{what}: no readable {name}")
    return value


def read_id(row: Row, what: str, name: str = "id") -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Malformed(f"{what}: no readable {name}")
    return value


def read_path(row: Row, what: str) -> str:
    """Return a directory in one spelling: VMS keeps the slashes that a person wrote behind it."""
    return read_text(row, "path", what).rstrip("/") or "/"


def read_bytes(row: Row, name: str, what: str) -> int | None:
    """Return a limit or a size; None where there is none (VMS: null or 0)."""
    value = row.get(name)
    if value is None or value == 0:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Malformed(f"{what}: no readable {name}")
    return value


def read_ranges(row: Row, what: str) -> AddressSet:
    """Return the client addresses of a tenant: pairs of first and last."""
    listed = row.get("client_ip_ranges")
    if listed is None:
        return ()
    try:
        if not isinstance(listed, list) or len(listed) > HOSTS_MAX:
            raise ValueError("no list")
        pairs = []
        for pair in listed:
            first, last = pair
            pairs.append((str(ipaddress.ip_address(first)), str(ipaddress.ip_address(last))))
        return make_set(pairs)
    except (ValueError, TypeError):
        raise Malformed(f"{what}: its client_ip_ranges cannot be read") from None


def read_hosts(row: Row, name: str, what: str) -> tuple[AddressSet, tuple[str, ...]]:
    """Return the addresses of one list of hosts, and its entries that are no addresses (netgroups,
    names), which may be anybody.
    """
    listed = row.get(name)
    if listed is None:
        return (), ()
    if not isinstance(listed, list) or len(listed) > HOSTS_MAX:
        raise Malformed(f"{what}: its {name} is no list")
    ranges: list[tuple[str, str]] = []
    named: list[str] = []
    for host in listed:
        if not isinstance(host, str) or not host.isprintable() or len(host) > 256:
            raise Malformed(f"{what}: a host of {name} cannot be read")
        spans = _read_host(host.strip())
        if spans is None:
            named.append(host.strip())
        else:
            ranges += spans
    return make_set(ranges), tuple(sorted(set(named)))


def _read_host(host: str) -> Sequence[tuple[str, str]] | None:
    """Return the ranges of one entry; a wildcard inside of an address counts as all that it covers.

    Too wide is safe: it is told, and the list is written anew as a whole.
    """
    if host == "*":
        return EVERYBODY
    if _WILDCARD.fullmatch(host) and "*" in host:
        fields = host.split(".")
        first = fields.index("*")
        low = ".".join([*fields[:first], *["0"] * (4 - first)])
        high = ".".join([*fields[:first], *["255"] * (4 - first)])
        return [(low, high)] if all(int(f) < 256 for f in fields[:first]) else None
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None
    return [(str(network[0]), str(network[-1]))]


def read_names(policy: Row, what: str) -> tuple[str, ...]:
    """Return the hosts of a policy that are no addresses, of those that it lets in by NFS."""
    return tuple(n for name in (READ_WRITE, READ_ONLY) for n in read_hosts(policy, name, what)[1])


def write_hosts(clients: AddressSet) -> list[str]:
    """Return a set as hosts of a policy: addresses, and networks where they fill one."""
    written: list[str] = []
    for first, last in clients:
        low = ipaddress.ip_address(first)
        high = ipaddress.ip_address(last)
        written += [
            str(n.network_address) if n.num_addresses == 1 else str(n)
            for n in ipaddress.summarize_address_range(low, high)
        ]
    return written


def write_ranges(clients: AddressSet) -> list[list[str]]:
    return [[first, last] for first, last in clients]


def write_lists(export: Export, clients: AddressSet) -> dict[str, Any]:
    """Return every list of an export's policy: exactly these clients, by NFS alone."""
    hosts = write_hosts(clients)
    return {
        READ_WRITE: [] if export.read_only else hosts,
        READ_ONLY: hosts if export.read_only else [],
        ROOT_SQUASH: hosts if export.root_squash else [],
        NO_SQUASH: [] if export.root_squash else hosts,
        **{name: [] for name in OTHER_LISTS},
    }


def expel_lists(policy: Row, leaving: AddressSet, what: str) -> dict[str, Any]:
    """Return every list of a policy without these clients; what no address says stays."""
    changed: dict[str, Any] = {}
    for name in (READ_WRITE, READ_ONLY, ROOT_SQUASH, NO_SQUASH, *OTHER_LISTS):
        hosts, named = read_hosts(policy, name, what)
        changed[name] = [*write_hosts(subtract(hosts, leaving)), *named]
    return changed


def name_policy(space: str, export: Export) -> str:
    """Return the name of an export's policy. It carries the rules: lists of nobody show none."""
    access = "ro" if export.read_only else "rw"
    root = "squash" if export.root_squash else "root"
    return f"{space}.{export.name}.{access}.{root}"


def read_rules(space: str, export: str, policy: Row) -> Export | None:
    """Return the rules that the name of a policy of ours carries; None: it is none of ours."""
    named = policy.get("name")
    prefix = f"{space}.{export}."
    if not isinstance(named, str) or not named.startswith(prefix):
        return None
    access, _, root = named[len(prefix) :].partition(".")
    if access not in ("ro", "rw") or root not in ("squash", "root"):
        return None
    return Export.model_construct(
        name=export, path="", read_only=access == "ro", root_squash=root == "squash"
    )


def read_policy(
    policy: Row, what: str
) -> tuple[AddressSet, bool | None, bool | None, tuple[str, ...]]:
    """Return (clients, read only, root squash, further openings) of a view policy."""
    lists = {
        n: read_hosts(policy, n, what) for n in (READ_WRITE, READ_ONLY, ROOT_SQUASH, NO_SQUASH)
    }
    writing = lists[READ_WRITE][0]
    reading = lists[READ_ONLY][0]
    clients = unite(writing, reading)
    foreign = [f"it lets in {n}" for _, named in lists.values() for n in named[:4]]
    read_only = None if bool(writing) == bool(reading) else bool(reading)
    squashed = lists[ROOT_SQUASH][0]
    bare = lists[NO_SQUASH][0]
    root_squash: bool | None = None
    if clients and not intersect(bare, clients) and not subtract(clients, squashed):
        root_squash = True
    elif clients and not intersect(squashed, clients) and not subtract(clients, bare):
        root_squash = False
    elif intersect(bare, clients):
        root_squash = False  # root of somebody is root
    for name, way in OTHER_LISTS.items():
        hosts, named = read_hosts(policy, name, what)
        if name == "nfs_all_squash":
            if intersect(hosts, clients) or named:
                foreign.append("users of some clients are nobody in it")
        elif name == "trash_access" and (hosts or named):
            foreign.append(f"{way} is open")
    if policy.get("permission_per_vip_pool"):
        foreign.append("some pools have rules of their own")
    return clients, read_only, root_squash, tuple(dict.fromkeys(foreign))


def read_space(
    space: str,
    tenant: Row,
    views: Iterable[Row],
    policies: Mapping[int, Row],
    quotas: Iterable[Row],
    server: str,
) -> SpaceState:
    """Return one tenant of VMS as a space. Raises Malformed."""
    what = f"tenant {space}"
    number = read_id(tenant, what)
    # a hand may have written the same directory twice: the plain spelling counts then
    mine = sorted(
        (read_text(q, "path", what), n, q)
        for n, q in enumerate(quotas)
        if q.get("tenant_id") == number
    )
    by_path = {read_path(q, what): q for _, _, q in reversed(mine)}
    exports: dict[str, SeenExport] = {}
    for view in views:
        if view.get("tenant_id") != number:
            continue
        export = _read_view(space, view, policies, by_path, server)
        if export.name in exports:
            export = _renamed(export, f"{export.name}#{read_id(view, what)}")
        exports[export.name] = export
    rules = tenant.get("capacity_rules")
    if rules is not None and not isinstance(rules, Mapping):
        raise Malformed(f"{what}: no readable capacity_rules")
    group = tenant.get("encryption_group")
    return SpaceState(
        handle=read_text(tenant, "guid", what),
        clients=read_ranges(tenant, what),
        exports=exports,
        quota_bytes=None if rules is None else read_bytes(rules, "hard_limit", what),
        encrypted=isinstance(group, str) and bool(group),
    )


def _renamed(export: SeenExport, name: str) -> SeenExport:
    return SeenExport(**{**export.__dict__, "name": name})


def name_of_view(space: str, view: Row) -> str:
    """Return the export's name of a view that has our form of name; else its path stands for it."""
    named = view.get("name")
    prefix = f"{space}."
    if isinstance(named, str) and named.startswith(prefix) and named.isprintable():
        return named[len(prefix) :][:63]
    return read_text(view, "path", f"a view of tenant {space}")


def _read_view(
    space: str,
    view: Row,
    policies: Mapping[int, Row],
    quotas: Mapping[str, Row],
    server: str,
) -> SeenExport:
    name = name_of_view(space, view)
    what = f"view {space}/{name}"
    path = read_path(view, what)
    protocols = view.get("protocols")
    if not isinstance(protocols, list) or not all(isinstance(p, str) for p in protocols):
        raise Malformed(f"{what}: no readable protocols")
    policy = policies.get(read_id(view, what, "policy_id"))
    if policy is None:
        raise Malformed(f"{what}: its policy is in no list, so that its clients are not known")
    clients, read_only, root_squash, foreign = read_policy(policy, what)
    more = [f"it is open over {p}"[:60] for p in sorted(set(protocols) - NFS)]
    if read_rules(space, name, policy) is None:
        more.append(f"another policy has its place ({str(policy.get('name'))[:60]})")
    alias = view.get("alias")
    mounted = alias if isinstance(alias, str) and alias else path
    quota = quotas.get(path)
    return SeenExport(
        name=name,
        path=path,
        read_only=read_only,
        root_squash=root_squash,
        clients=clients if set(protocols) & NFS else (),
        quota_bytes=None if quota is None else read_bytes(quota, "hard_limit", what),
        used_bytes=None if quota is None else (read_bytes(quota, "used_capacity", what) or 0),
        mount=f"{server}:{mounted}" if server else "",
        foreign=(*foreign, *more),
    )


def find_server(pools: Sequence[Row], wanted: Sequence[str], tenant: int) -> str:
    """Return the first address of a pool that serves this tenant; "" if none is known to.

    A pool with a tenant's id serves that tenant alone; one without serves all.
    """
    for pool in sorted(pools, key=lambda p: str(p.get("name"))):
        owner = pool.get("tenant_id")
        right = not wanted or pool.get("name") in wanted
        if not right or pool.get("enabled") is False or owner not in (None, tenant):
            continue
        for pair in pool.get("ip_ranges") or ():
            try:
                return str(ipaddress.ip_address(pair[0]))
            except (ValueError, TypeError, IndexError, KeyError):
                raise Malformed(
                    f"pool {str(pool.get('name'))[:60]}: no readable ip_ranges"
                ) from None
    return ""
