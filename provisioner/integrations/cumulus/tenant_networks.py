"""Tenants' networks on one switch: its configuration and VRFs read, one change of them applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from provisioner.integrations.cumulus import nvue_calls, port_filter
from provisioner.integrations.cumulus.nvue_calls import PREFIX, Ask
from provisioner.integrations.cumulus.revisions import (
    CONFIGURATION_S,
    NvueLine,
    Revisions,
    encode_switch,
    read_release,
)
from provisioner.model.tenant_network import (
    NetworkChange,
    NetworkState,
    OutsideSession,
    PortFilter,
    RoutePolicy,
    VrfNetwork,
)
from provisioner.ports import Malformed

# ------------------------------------------------------------------------------
# Tenants' networks in NVUE's configuration tree: read from it, and written as a minimal revision.
#
# Sources: the Cumulus Linux guide's chapters "Inter-subnet Routing", "VRF Route Leaking" and "Route
# Filtering", and NVIDIA's own NVUE templates for tenants (NICo). Values are compared as the switch
# prints them. A tree may be filled with defaults, so only listed places are closed: there each key
# that is not desired is removed.


Path = tuple[str, ...]
Tree = dict[str, Any]

VNI_MAX = 16_777_214  # NVUE reference: 1 to 16777214
LAST_RULE = "65535"  # of a route map: routes that no earlier rule permits are denied
IPV4 = "ipv4-unicast"
IPV6 = "ipv6-unicast"
_FAMILY = ("router", "bgp", "address-family", IPV4)
_FAMILY_6 = ("router", "bgp", "address-family", IPV6)
_SETS = ("community", "large-community", "local-preference")  # of a route map's rule
_VRF_IMPORTS = (*_FAMILY, "route-import", "from-vrf")
_IMPORT_TARGETS = ("router", "bgp", "route-import", "from-evpn", "route-target")
_EXPORT_TARGETS = ("router", "bgp", "route-export", "to-evpn", "route-target")
_SESSIONS = ("router", "bgp", "neighbor")
_POLICIES: tuple[Path, ...] = (
    ("router", "policy", "route-map"),
    ("router", "policy", "prefix-list"),
)
_CLOSED: tuple[Path, ...] = (("evpn", "vni"), _EXPORT_TARGETS, _IMPORT_TARGETS, _SESSIONS)


@dataclass(frozen=True)
class AppliedNetworks:
    """The part of a configuration that tenants' networks depend on."""

    vrfs: Mapping[str, VrfNetwork]
    policies: Mapping[str, RoutePolicy | None]
    ports: Mapping[str, str]  # interface -> VRF
    asn: int | None
    has_evpn: bool
    has_vxlan: bool
    filters: Mapping[str, PortFilter | None]
    bound: Mapping[str, frozenset[str]]  # interface -> tenants' filters


@dataclass(frozen=True)
class TreeChange:
    """The content of a revision: paths to remove, then a tree to merge."""

    unset: tuple[Path, ...] = ()
    tree: Tree = field(default_factory=dict)


def read_networks(applied: object) -> AppliedNetworks:
    """Return the networks of a configuration. Raises `Malformed` for a VNI that is no number."""
    entries = read_subtree(applied, ("interface",))
    ports = {name: read_subtree(entry, ("ip",)).get("vrf") for name, entry in entries.items()}
    maps = read_subtree(applied, ("router", "policy", "route-map"))
    lists = read_subtree(applied, ("router", "policy", "prefix-list"))
    asn = read_subtree(applied, ("router", "bgp")).get("autonomous-system")
    vrfs = read_subtree(applied, ("vrf",))
    return AppliedNetworks(
        vrfs={name: _read_vrf(name, entry) for name, entry in vrfs.items()},
        policies={name: _read_policy(name, applied) for name in sorted({*maps, *lists})},
        ports={name: vrf for name, vrf in ports.items() if isinstance(vrf, str)},
        asn=_read_number(asn),
        has_evpn=_is_on(read_subtree(applied, ("evpn",))),
        has_vxlan=_is_on(read_subtree(applied, ("nve", "vxlan"))),
        filters=port_filter.read_filters(read_subtree(applied, ("acl",))),
        bound=read_bound(entries),
    )


def read_bound(interfaces: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the ports with filters of tenants, among all interfaces of a tree."""
    bound = {name: port_filter.read_bound(entry) for name, entry in interfaces.items()}
    return {name: filters for name, filters in bound.items() if filters}


def encode_change(change: NetworkChange, applied: object, version: str) -> TreeChange:
    """Return the revision that makes a change in this configuration of this release."""
    switch_on = make_switch(version)
    desired: Tree = {}
    unset: list[Path] = [("vrf", vrf) for vrf in sorted(change.removed_vrfs)]
    for name in sorted(change.removed_policies):
        unset += [(*path, name) for path in _POLICIES if name in read_subtree(applied, path)]
    for vrf, network in change.vrfs.items():
        encoded = _encode_vrf(network, switch_on)
        present = read_subtree(applied, ("vrf", vrf))
        unset += [("vrf", vrf, *path) for path in _find_surplus(encoded, present)]
        merge_tree(desired, {"vrf": {vrf: encoded}})
    for vrf, imports in change.site_imports.items():
        path: Path = ("vrf", vrf, *_VRF_IMPORTS)
        held = read_subtree(applied, (*path, "list"))
        unset += [(*path, "list", name) for name in sorted(imports.removed) if name in held]
        if imports.added:
            merge_tree(desired, _make_tree(path, _encode_imports(imports.added, switch_on)))
    for name, policy in change.policies.items():
        encoded = _encode_policy(name, policy)
        unset += _find_policy_surplus(name, encoded, applied)
        merge_tree(desired, encoded)
    tree = find_missing_tree(desired, applied)
    freed, guards = port_filter.encode_guards(change, applied)
    merge_tree(tree, guards)
    return TreeChange(tuple(dict.fromkeys([*unset, *freed])), tree)


def make_switch(version: str) -> Tree:
    """Return the leaf with which a release of Cumulus Linux enables a feature."""
    return encode_switch({"enable": "on"}, read_release(version))


def find_missing_tree(desired: Mapping[str, Any], held: object) -> Tree:
    """Return the part of a tree that another one lacks. Scalars are compared as the switch
    prints them.
    """
    have = held if isinstance(held, Mapping) else {}
    lacking: Tree = {}
    for key, value in desired.items():
        if isinstance(value, Mapping):
            if key not in have:
                lacking[key] = value
            elif inner := find_missing_tree(value, have[key]):
                lacking[key] = inner
        elif str(have.get(key)).lower() != str(value).lower():
            lacking[key] = value
    return lacking


def read_subtree(tree: object, path: Path) -> Mapping[str, Any]:
    """Return the mapping at a path; {} where a switch has another value or none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def read_vnis(vrf: str, evpn: object) -> frozenset[int]:
    """Return the VNIs of a VRF's EVPN. Raises `Malformed` for one that is no number."""
    vnis = [_read_number(vni) for vni in read_subtree(evpn, ("vni",))]
    numbers = frozenset(vni for vni in vnis if vni is not None and 0 < vni <= VNI_MAX)
    if len(numbers) < len(vnis):
        raise Malformed(f"VRF {vrf[:20]}: a VNI that is no number")
    return numbers


def _read_vrf(name: str, entry: object) -> VrfNetwork:
    bgp = read_subtree(entry, ("router", "bgp"))
    switches = (
        ("evpn",),
        ("router", "bgp"),
        _FAMILY,
        (*_FAMILY, "redistribute", "connected"),
        (*_FAMILY, "route-export", "to-evpn"),
    )
    imports = read_subtree(entry, _VRF_IMPORTS)
    return VrfNetwork(
        vnis=read_vnis(name, read_subtree(entry, ("evpn",))),
        import_targets=frozenset(read_subtree(entry, _IMPORT_TARGETS)),
        export_targets=frozenset(read_subtree(entry, _EXPORT_TARGETS)),
        asn=_read_number(bgp.get("autonomous-system")),
        router_id=str(bgp.get("router-id", "")),
        is_announced=all(_is_on(read_subtree(entry, path)) for path in switches),
        imports_vrfs=_is_on(imports),
        imported_vrfs=frozenset(read_subtree(imports, ("list",))),
        with_ipv6=all(
            _is_on(read_subtree(entry, (*_FAMILY_6, *path)))
            for path in ((), ("redistribute", "connected"), ("route-export", "to-evpn"))
        ),
        sessions={
            peer: _read_session(peer, s) for peer, s in read_subtree(entry, _SESSIONS).items()
        },
    )


def _read_session(peer: str, entry: object) -> OutsideSession:
    fields = read_subtree(entry, ())
    families = read_subtree(entry, ("address-family",))
    own = _name_family(peer)
    family = read_subtree(families, (own,))
    others = [name for name, one in families.items() if name != own and _is_on(one)]
    if own == IPV6 and IPV4 not in families:
        others.append(IPV4)  # it is on where nothing is said
    numbered = str(fields.get("type")).lower() == "numbered"
    limits = read_subtree(family, ("prefix-limits", "inbound"))
    only_warns = str(limits.get("warning-only")).lower() in _ON
    sent = read_subtree(family, ("community-advertise",))
    return OutsideSession(
        remote_as=_read_number(fields.get("remote-as")),
        policy_in=str(read_subtree(family, ("policy", "inbound")).get("route-map", "")),
        policy_out=str(read_subtree(family, ("policy", "outbound")).get("route-map", "")),
        is_on=numbered and _is_on(family) and not others,
        prefixes_max=None if only_warns else _read_number(limits.get("maximum")),
        sends_communities=all(str(sent.get(k)).lower() in _ON for k in ("regular", "large")),
    )


def _name_family(address: str) -> str:
    return IPV6 if ":" in address else IPV4


def _read_policy(name: str, applied: object) -> RoutePolicy | None:
    """Return the policy of this name; None if the tree has another form than we write."""
    rules = read_subtree(applied, ("router", "policy", "prefix-list", name, "rule"))
    if not all(key.isascii() and key.isdigit() for key in rules):
        return None
    numbers = sorted(rules, key=lambda number: (len(number), number))
    matches = [read_subtree(rules[number], ("match",)) for number in numbers]
    limits = [read_subtree(match, (prefix,)) for match in matches for prefix in match]
    sets = read_subtree(applied, ("router", "policy", "route-map", name, "rule", "10", "set"))
    marks = [*read_subtree(sets, ("community",)), *read_subtree(sets, ("large-community",))]
    policy = RoutePolicy(
        tuple(prefix for match in matches for prefix in match),
        with_parts=any("max-prefix-len" in limit for limit in limits),
        communities=tuple(sorted(marks)),
        local_preference=_read_number(sets.get("local-preference")),
    )
    tree = _encode_policy(name, policy)
    is_exact = not find_missing_tree(tree, applied) and not _find_policy_surplus(
        name, tree, applied
    )
    return policy if is_exact else None


def _read_number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


_ON = ("on", "enabled")


def _is_on(tree: Mapping[str, Any]) -> bool:
    return tree.get("enable") == "on" or tree.get("state") == "enabled"


def _encode_vrf(network: VrfNetwork, switch_on: Tree) -> Tree:
    unicast: Tree = {
        **switch_on,
        "redistribute": {"connected": switch_on},
        "route-export": {"to-evpn": switch_on},
    }
    if network.imports_vrfs:
        imports = _encode_imports(network.imported_vrfs, switch_on)
        unicast["route-import"] = {"from-vrf": imports}
    bgp: Tree = {
        **switch_on,
        "autonomous-system": network.asn,
        "router-id": network.router_id,
        "route-export": {"to-evpn": {"route-target": _make_set(network.export_targets)}},
        "route-import": {"from-evpn": {"route-target": _make_set(network.import_targets)}},
        "address-family": {IPV4: unicast},
    }
    if network.with_ipv6:
        bgp["address-family"][IPV6] = {
            **switch_on,
            "redistribute": {"connected": switch_on},
            "route-export": {"to-evpn": switch_on},
        }
    if network.sessions:
        bgp["neighbor"] = {
            peer: _encode_session(peer, session, switch_on)
            for peer, session in network.sessions.items()
        }
    vnis = _make_set(map(str, sorted(network.vnis)))
    return {"evpn": {**switch_on, "vni": vnis}, "router": {"bgp": bgp}}


def _encode_session(peer: str, session: OutsideSession, switch_on: Tree) -> Tree:
    policy = {
        "inbound": {"route-map": session.policy_in},
        "outbound": {"route-map": session.policy_out},
    }
    own = _name_family(peer)
    family: Tree = {**switch_on, "policy": policy}
    if session.prefixes_max:
        family["prefix-limits"] = {"inbound": {"maximum": session.prefixes_max}}
    if session.sends_communities:
        family["community-advertise"] = dict.fromkeys(("regular", "large"), *switch_on.values())
    families = {own: family}
    if own == IPV6:  # else it would exchange routes of IPv4 without a policy
        families[IPV4] = {"enable": "off"} if "enable" in switch_on else {"state": "disabled"}
    return {"type": "numbered", "remote-as": session.remote_as, "address-family": families}


def _encode_imports(vrfs: frozenset[str], switch_on: Tree) -> Tree:
    return {**switch_on, "list": _make_set(sorted(vrfs))}


def _encode_policy(name: str, policy: RoutePolicy) -> Tree:
    """Return a policy as a route map and its prefix list. It is closed by the last rule."""
    rules: Tree = {LAST_RULE: {"action": {"deny": {}}}}
    parts: Tree = {"route-map": {name: {"rule": rules}}}
    if policy.prefixes:
        kind, longest = ("ipv6", 128) if ":" in policy.prefixes[0] else ("ipv4", 32)
        limit = {"max-prefix-len": longest} if policy.with_parts else {}
        match = {"type": kind, "ip-prefix-list": name}
        rules["10"] = {"action": {"permit": {}}, "match": match}
        if sets := _encode_sets(policy):
            rules["10"]["set"] = sets
        numbered = {
            str(10 * (i + 1)): {"action": "permit", "match": {prefix: dict(limit)}}
            for i, prefix in enumerate(policy.prefixes)
        }
        parts["prefix-list"] = {name: {"type": kind, "rule": numbered}}
    return {"router": {"policy": parts}}


def _encode_sets(policy: RoutePolicy) -> Tree:
    sets: Tree = {}
    for community in policy.communities:
        key = "large-community" if community.count(":") == 2 else "community"
        sets.setdefault(key, {})[community] = {}
    if policy.local_preference is not None:
        sets["local-preference"] = policy.local_preference
    return sets


def _find_surplus(desired: Tree, held: Mapping[str, Any]) -> Iterator[Path]:
    """Return the paths of one VRF that its network must not have."""
    for path in _CLOSED:
        keys = read_subtree(desired, path)
        yield from ((*path, key) for key in read_subtree(held, path) if key not in keys)
    for peer, session in read_subtree(desired, _SESSIONS).items():
        yield from _find_session_surplus((*_SESSIONS, peer), session, held)
    imports = read_subtree(desired, _VRF_IMPORTS)
    if not imports:
        if read_subtree(held, _VRF_IMPORTS):
            yield _VRF_IMPORTS
        return
    for vrf in read_subtree(held, (*_VRF_IMPORTS, "list")):
        if vrf not in imports["list"]:
            yield (*_VRF_IMPORTS, "list", vrf)


def _find_session_surplus(path: Path, desired: Tree, held: Mapping[str, Any]) -> Iterator[Path]:
    """Return the families beside the session's own, and what makes its limit a mere warning."""
    for name, family in read_subtree(held, (*path, "address-family")).items():
        wish = desired["address-family"].get(name)
        if wish is None and _is_on(read_subtree(family, ())):
            yield (*path, "address-family", name)
        limits = read_subtree(family, ("prefix-limits", "inbound"))
        if wish and "prefix-limits" in wish and str(limits.get("warning-only")).lower() in _ON:
            yield (*path, "address-family", name, "prefix-limits", "inbound", "warning-only")


def _find_policy_surplus(name: str, desired: Tree, applied: object) -> list[Path]:
    """Return the paths of a policy that it must not have: rules, actions, prefixes and parts."""
    surplus: list[Path] = []
    for root in _POLICIES:
        path = (*root, name)
        if name in read_subtree(applied, root) and name not in read_subtree(desired, root):
            surplus.append(path)
            continue
        rules = read_subtree(desired, (*path, "rule"))
        for number, rule in read_subtree(applied, (*path, "rule")).items():
            rule_path = (*path, "rule", number)
            if number not in rules:
                surplus.append(rule_path)
            elif root[-1] == "prefix-list":
                surplus += _find_prefix_surplus(rule_path, rules[number], rule)
            else:
                actions = read_subtree(rule, ("action",))
                surplus += [
                    (*rule_path, "action", key)
                    for key in ("permit", "deny")
                    if key in actions and key not in rules[number]["action"]
                ]
                wish = rules[number].get("set", {})
                surplus += _find_set_surplus(rule_path, wish, read_subtree(rule, ("set",)))
    return surplus


def _find_set_surplus(path: Path, desired: Tree, held: Mapping[str, Any]) -> Iterator[Path]:
    for key in _SETS:
        listed = read_subtree(held, (key,))
        if key in held and key not in desired:
            if listed or _read_number(held[key]) is not None:
                yield (*path, "set", key)
        else:
            yield from ((*path, "set", key, one) for one in listed if one not in desired[key])


def _find_prefix_surplus(path: Path, desired: Tree, rule: object) -> Iterator[Path]:
    for prefix, limits in sorted(read_subtree(rule, ("match",)).items()):
        if prefix not in desired["match"]:
            yield (*path, "match", prefix)
        elif "max-prefix-len" in read_subtree(limits, ()) and not desired["match"][prefix]:
            yield (*path, "match", prefix, "max-prefix-len")


def _make_set(keys: Iterable[str]) -> Tree:
    return {key: {} for key in keys}


def _make_tree(path: Path, tree: Tree) -> Tree:
    for key in reversed(path):
        tree = {key: tree}
    return tree


def merge_tree(tree: Tree, more: Mapping[str, Any]) -> None:
    """Add a tree to another one in place; where both have a value, the values are equal."""
    for key, value in more.items():
        if isinstance(value, Mapping):
            merge_tree(tree.setdefault(key, {}), value)
        else:
            tree[key] = value


# ------------------------------------------------------------------------------
# A tenant's BGP and EVPN state in NVUE's answers.
#
# Shapes: NVUE reference, "nv show evpn vni <vni-id> bgp-info", whose names in brackets are lists;
# "nv show vrf <vrf-id> router bgp neighbor".


SESSIONS_MAX = 4096  # of one VRF; a tenant has a few
TARGETS_MAX = 1024


def read_targets(answer: Any) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the route targets that a VNI imports and exports; None if they cannot be read."""
    if not isinstance(answer, Mapping):
        return None
    found = []
    for name in ("import-route-target", "export-route-target"):
        value = answer.get(name)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, Mapping | list) or len(listed) > TARGETS_MAX:
            return None
        if not all(isinstance(target, str) for target in listed):
            return None
        found.append(frozenset(listed))
    return found[0], found[1]


def read_states(answer: Any) -> dict[str, str] | None:
    """Return neighbour -> state of its session in lower case; None if one cannot be read."""
    if not isinstance(answer, Mapping) or len(answer) > SESSIONS_MAX:
        return None
    states = {n: e.get("state") if isinstance(e, Mapping) else None for n, e in answer.items()}
    if not all(isinstance(s, str) for s in states.values()):
        return None
    return {str(n): str(s).lower() for n, s in states.items()}


class TenantNetworks:
    """Reads and writes VRFs. Methods raise `PortError`."""

    def __init__(self, line: NvueLine, revisions: Revisions) -> None:
        self._line = line
        self._revisions = revisions

    async def read(self, vrfs: Collection[str]) -> NetworkState:
        """Return the applied configuration, the VRFs and ports in force, and VNIs of `vrfs`."""
        applied, startup = [
            await self._line.get(nvue_calls.tree_path(tree), CONFIGURATION_S)
            for tree in ("applied", "startup")
        ]
        names = nvue_calls.read_names(await self._line.get(nvue_calls.VRFS_PATH))
        listed = await self._line.get(nvue_calls.INTERFACES_PATH)
        if not isinstance(applied, dict) or not names or not isinstance(listed, dict):
            raise Malformed("no readable configuration, VRFs or interfaces")
        ports = {}
        for name, entry in listed.items():
            vrf = nvue_calls.read_vrf(entry)
            if vrf is None:
                raise Malformed(f"{name[:20]}: no readable operational state")
            ports[name] = vrf
        networks = read_networks(applied)
        return NetworkState(
            switch=self._line.name,
            vrfs=networks.vrfs,
            policies=networks.policies,
            ports_applied=networks.ports,
            asn=networks.asn,
            has_evpn=networks.has_evpn,
            has_vxlan=networks.has_vxlan,
            vrfs_in_force=frozenset(names),
            ports=ports,
            vnis_in_force={v: await self._read_vnis(v) for v in sorted(set(vrfs) & set(names))},
            saved=bool(applied == startup),
            filters=networks.filters,
            bound=networks.bound,
            filters_in_force=await self._read_filters() if networks.filters else {},
            bound_in_force=read_bound(listed),
        )

    async def apply(self, change: NetworkChange) -> str:
        """Apply removals, then the merge, as one revision."""
        images = nvue_calls.read_images(await self._line.get(nvue_calls.IMAGES_PATH))
        if isinstance(images, str):
            raise Malformed(images)
        applied = await self._line.get(nvue_calls.tree_path("applied"), CONFIGURATION_S)
        encoded = encode_change(change, applied, images.running)

        def fill(revision: str) -> Iterable[Ask]:
            for path in encoded.unset:
                yield Ask("DELETE", _at_revision(path, revision))
            if encoded.tree:
                yield Ask("PATCH", _at_revision((), revision), encoded.tree)

        return await self._revisions.apply(fill)

    async def _read_filters(self) -> dict[str, PortFilter | None]:
        """Return the filters of tenants that are in force."""
        return port_filter.read_filters(await self._line.find(nvue_calls.acls_path()))

    async def _read_vnis(self, vrf: str) -> frozenset[int]:
        """Return the VNIs in force, not the configured ones (`nv show vrf VRF evpn`)."""
        path = f"{PREFIX}/vrf/{quote(vrf, safe='')}/evpn?rev=operational"
        reply = await self._line.send(Ask("GET", path))
        answer = self._line.read(path, reply) if reply.status == 200 else {}  # 404: no EVPN in it
        return read_vnis(vrf, answer)


def _at_revision(path: Path, revision: str) -> str:
    steps = "/".join(quote(step, safe="") for step in path)
    return f"{PREFIX}/{steps}?rev={quote(revision, safe='')}"
