"""A change of tenants' networks as lines for a person, in the fabric's words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provisioner.model.tenant_network import (
    FilterMatch,
    NetworkChange,
    NetworkState,
    RoutePolicy,
    VrfNetwork,
)


def describe_change(change: NetworkChange, state: NetworkState) -> tuple[str, ...]:
    """Return one line for each part that changes, removals first."""
    return (
        *(f"remove VRF {vrf}" for vrf in sorted(change.removed_vrfs)),
        *(f"remove policy {name}" for name in sorted(change.removed_policies)),
        *(
            f"VRF {vrf}: {line}"
            for vrf, network in sorted(change.vrfs.items())
            for line in _describe_vrf(network, state.vrfs.get(vrf, VrfNetwork()))
        ),
        *(
            f"VRF {vrf}: {line}"
            for vrf, imports in sorted(change.site_imports.items())
            for line in _describe_set("import of VRF", imports.added, imports.removed)
        ),
        *(
            f"policy {name}: permit {_describe_policy(policy)}"
            for name, policy in sorted(change.policies.items())
        ),
        *(f"remove filter {name}" for name in sorted(change.removed_filters)),
        *(
            f"filter {name}: {describe_match(match)}"
            for name, rules in sorted(change.filters.items())
            for match in rules
        ),
        *(
            f"port {port}: {f'filter {guard.name}' if guard.name else 'no filter'}"
            for port, guard in sorted(change.bound.items())
        ),
    )


def describe_match(match: FilterMatch) -> str:
    """Return one rule of a port's filter in words."""
    port = f" port {match.port}" if match.port else ""
    state = " of open connections" if match.established else ""
    target = f" to {match.target}" if match.target else ""
    ends = f"from {match.source or 'anywhere'}{target}"
    return f"{match.action} {match.protocol or 'everything'}{port}{state} {ends}"


def _describe_vrf(desired: VrfNetwork, applied: VrfNetwork) -> Iterator[str]:
    sets: tuple[tuple[str, Iterable[object], Iterable[object]], ...] = (
        ("L3VNI", desired.vnis, applied.vnis),
        ("imported route target", desired.import_targets, applied.import_targets),
        ("exported route target", desired.export_targets, applied.export_targets),
        ("import of VRF", desired.imported_vrfs, applied.imported_vrfs),
    )
    for label, after, before in sets:
        yield from _describe_set(label, set(after) - set(before), set(before) - set(after))
    if desired.imports_vrfs != applied.imports_vrfs:
        yield f"{'begin' if desired.imports_vrfs else 'cease'} to import from other VRFs"
    if desired.asn != applied.asn:
        yield f"set AS number {desired.asn}"
    if desired.router_id != applied.router_id:
        yield f"set router id {desired.router_id}"
    if desired.is_announced != applied.is_announced:
        yield "announce connected routes by BGP and EVPN"
    for peer in sorted(applied.sessions.keys() - desired.sessions.keys()):
        yield f"remove session {peer}"
    for peer, session in sorted(desired.sessions.items()):
        if applied.sessions.get(peer) != session:
            names = f"policies {session.policy_in} and {session.policy_out}"
            yield f"set session {peer} to AS {session.remote_as}, {names}"


def _describe_set(label: str, added: Iterable[object], removed: Iterable[object]) -> Iterator[str]:
    yield from (f"remove {label} {item}" for item in sorted(map(str, removed)))
    yield from (f"add {label} {item}" for item in sorted(map(str, added)))


def _describe_policy(policy: RoutePolicy) -> str:
    if not policy.prefixes:
        return "no route"
    return ", ".join(policy.prefixes) + (" with their parts" if policy.with_parts else "")
