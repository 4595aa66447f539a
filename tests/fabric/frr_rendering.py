"""From an NVUE configuration to what the kernel and FRRouting must hold. Pure.

A kernel may have no VRF devices, so that a VRF is a network namespace (zebra's option `-n`), an
EVPN L3VNI is a VXLAN device whose packets travel in the default VRF, and `route-import from-vrf`
is a cable between two namespaces with a BGP session over it: FRRouting's own `import vrf` installs
routes by interface numbers, which mean something else in the other namespace.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT = "default"
PLUMBING = "169.254.0.0/16"  # of the cables between VRFs; no switch shows it
# a busy machine must not end a session; whoever halts a daemon ends its connections at once
TIMERS = "timers bgp 3 15"
IMPORTED = 65500  # AS numbers below 65510 stand for such a cable

Line = tuple[tuple[str, ...], str]  # the modes to be entered, then the line


@dataclass(frozen=True)
class Wanted:
    """What is to be there. `vrfs`: with their L3VNI, 0 for none; `joints`: who imports of whom."""

    loopback: str = ""
    vrfs: Mapping[str, int] = field(default_factory=dict)
    ports: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    joints: tuple[tuple[str, str], ...] = ()
    zebra: tuple[Line, ...] = ()
    bgpd: tuple[Line, ...] = ()
    acls: Mapping[str, Any] = field(default_factory=dict)
    bound: Mapping[str, Any] = field(default_factory=dict)  # port -> access list -> ways


def at(tree: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at a path; empty where there is none."""
    for word in path:
        tree = tree.get(word) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def on(tree: Mapping[str, Any]) -> bool:
    """Whether NVUE calls it on, in the words of either release."""
    return tree.get("enable") == "on" or tree.get("state") == "enabled"


def wanted(tree: Mapping[str, Any]) -> Wanted:
    """What this configuration asks for."""
    vrfs = {
        name: next((int(v) for v in at(entry, "evpn", "vni")), 0)
        for name, entry in at(tree, "vrf").items()
        if name != DEFAULT
    }
    ports = {
        name: (str(at(entry, "ip").get("vrf", DEFAULT)), tuple(sorted(at(entry, "ip", "address"))))
        for name, entry in at(tree, "interface").items()
        if name != "lo"
    }
    joints = tuple(
        (vrf, other)
        for vrf, entry in sorted(at(tree, "vrf").items())
        for other in sorted(at(entry, *_UNICAST, "route-import", "from-vrf", "list"))
        if vrf in vrfs and other in vrfs
    )
    loopback = next(iter(at(tree, "interface", "lo", "ip", "address")), "")
    zebra = [((f"vrf {vrf}",), f"vni {vni}") for vrf, vni in vrfs.items() if vni]
    bgpd = [*_policy(tree), *_underlay(tree)]
    for vrf, entry in at(tree, "vrf").items():
        if vrf != DEFAULT and on(at(entry, "router", "bgp")):
            bgpd += _vrf(vrf, entry, joints)
    bound = {name: at(e, "acl") for name, e in at(tree, "interface").items() if at(e, "acl")}
    return Wanted(loopback, vrfs, ports, joints, tuple(zebra), tuple(bgpd), at(tree, "acl"), bound)


_UNICAST = ("router", "bgp", "address-family", "ipv4-unicast")


def _policy(tree: Mapping[str, Any]) -> Iterator[Line]:
    """Prefix lists and route maps: the plumbing's, then the configured ones."""
    yield (), f"ip prefix-list PLUMBING seq 5 permit {PLUMBING} le 32"
    yield (), f"bgp as-path access-list IMPORTED seq 5 permit _{IMPORTED}_"
    yield (), f"bgp as-path access-list IMPORTED seq 10 permit _{IMPORTED + 1}_"
    for name, match in (
        ("CONNECTED", "ip address prefix-list PLUMBING"),
        ("OWN", "as-path IMPORTED"),
    ):
        yield (f"route-map {name} deny 10",), f"match {match}"
        yield (f"route-map {name} permit 20",), ""
    yield ("route-map NOTHING deny 10",), ""
    policy = at(tree, "router", "policy")
    for name, entry in at(policy, "prefix-list").items():
        for number, rule in at(entry, "rule").items():
            for prefix, limits in at(rule, "match").items():
                longest = at(limits).get("max-prefix-len")
                parts = f" le {longest}" if longest and not prefix.endswith(f"/{longest}") else ""
                word = "ipv6" if entry.get("type") == "ipv6" else "ip"
                yield (), f"{word} prefix-list {name} seq {number} {rule['action']} {prefix}{parts}"
    for name, entry in at(policy, "route-map").items():
        for number, rule in at(entry, "rule").items():
            mode = f"route-map {name} {next(iter(at(rule, 'action')))} {number}"
            listed = at(rule, "match").get("ip-prefix-list")
            word = "ipv6" if at(rule, "match").get("type") == "ipv6" else "ip"
            yield (mode,), f"match {word} address prefix-list {listed}" if listed else ""
            for key in ("community", "large-community"):
                if marks := " ".join(at(rule, "set", key)):
                    yield (mode,), f"set {key} {marks}"
            if "local-preference" in at(rule, "set"):
                yield (mode,), f"set local-preference {at(rule, 'set')['local-preference']}"


def _underlay(tree: Mapping[str, Any]) -> Iterator[Line]:
    """The default VRF: the fabric's own sessions, and EVPN over them."""
    bgp = at(tree, "router", "bgp")
    if not on(bgp):
        return
    if bgp.get("graceful-shutdown") in ("on", "enabled"):
        yield (), "bgp graceful-shutdown"
    top = f"router bgp {bgp['autonomous-system']}"
    yield (top,), f"bgp router-id {bgp['router-id']}"
    yield (top,), "bgp bestpath as-path multipath-relax"
    yield (top,), TIMERS
    yield (top, "address-family ipv4 unicast"), "redistribute connected"
    evpn = on(at(tree, "evpn"))
    if evpn:
        # Without it, a peer that is tried before its line `ebgp-multihop` is in force leaves its
        # next hop "Must be Connected" for good, and all its routes invalid (FRRouting 8.4.4, also
        # where a peer group has that line before the peer exists).
        yield (top,), "bgp disable-ebgp-connected-route-check"
        yield (top, "address-family l2vpn evpn"), "advertise-all-vni"
    for name, entry in at(tree, "vrf", DEFAULT, "router", "bgp", "neighbor").items():
        if entry.get("type") == "numbered":
            yield (top,), f"neighbor {name} remote-as {entry['remote-as']}"
            yield (top,), f"neighbor {name} ebgp-multihop {entry['multihop-ttl']}"
            yield (top,), f"neighbor {name} update-source {entry['update-source']}"
        else:
            yield (top,), f"neighbor {name} interface remote-as {entry['remote-as']}"
        yield (top,), f"neighbor {name} timers connect 1"
        if not on(at(entry, "address-family", "ipv4-unicast")):
            yield (top, "address-family ipv4 unicast"), f"no neighbor {name} activate"
        if evpn and on(at(entry, "address-family", "l2vpn-evpn")):
            yield (top, "address-family l2vpn evpn"), f"neighbor {name} activate"


def _vrf(vrf: str, entry: Mapping[str, Any], joints: tuple[tuple[str, str], ...]) -> Iterator[Line]:
    """One VRF: connected routes into EVPN by its targets, its sessions, its imports."""
    bgp = at(entry, "router", "bgp")
    top = f"router bgp {bgp['autonomous-system']} vrf {vrf}"
    ipv4, evpn = (top, "address-family ipv4 unicast"), (top, "address-family l2vpn evpn")
    ipv6 = (top, "address-family ipv6 unicast")
    unicast = at(bgp, "address-family", "ipv4-unicast")
    yield (top,), f"bgp router-id {bgp['router-id']}"
    yield (top,), "bgp bestpath as-path multipath-relax"
    yield (top,), TIMERS
    if on(at(unicast, "redistribute", "connected")):
        yield ipv4, "redistribute connected route-map CONNECTED"
    for peer, session in at(bgp, "neighbor").items():
        yield (top,), f"neighbor {peer} remote-as {session['remote-as']}"
        yield (top,), f"neighbor {peer} timers connect 1"
        for mode, family in ((ipv4, "ipv4-unicast"), (ipv6, "ipv6-unicast")):
            yield from _session(peer, mode, at(session, "address-family", family))
    for target in at(bgp, "route-import", "from-evpn", "route-target"):
        yield evpn, f"route-target import {target}"
    for target in at(bgp, "route-export", "to-evpn", "route-target"):
        yield evpn, f"route-target export {target}"
    if on(at(unicast, "route-export", "to-evpn")):
        yield evpn, "advertise ipv4 unicast route-map OWN"
    second = at(bgp, "address-family", "ipv6-unicast")
    if on(second) and on(at(second, "redistribute", "connected")):
        yield ipv6, "redistribute connected"
    if on(second) and on(at(second, "route-export", "to-evpn")):
        yield evpn, "advertise ipv6 unicast"
    yield from _imports(vrf, top, ipv4, joints)


def _session(peer: str, mode: tuple[str, ...], family: Mapping[str, Any]) -> Iterator[Line]:
    """One family of a session. NVUE has IPv4 on where nothing is said, and sends no communities."""
    if not on(family):
        if mode[1].startswith("address-family ipv4") and family:
            yield mode, f"no neighbor {peer} activate"
        return
    yield mode, f"neighbor {peer} activate"
    for words, way in (("inbound", "in"), ("outbound", "out")):
        if chosen := at(family, "policy", words).get("route-map"):
            yield mode, f"neighbor {peer} route-map {chosen} {way}"
    if most := at(family, "prefix-limits", "inbound").get("maximum"):
        yield mode, f"neighbor {peer} maximum-prefix {most}"
    for key, word in (("regular", "standard"), ("large", "large")):
        sent = at(family, "community-advertise").get(key) in ("on", "enabled")
        yield mode, f"{'' if sent else 'no '}neighbor {peer} send-community {word}"


def _imports(
    vrf: str, top: str, ipv4: tuple[str, ...], joints: tuple[tuple[str, str], ...]
) -> Iterator[Line]:
    for number, pair in enumerate(cables(joints)):
        if vrf not in pair:
            continue
        side = pair.index(vrf)
        peer = joint_address(number, 1 - side)
        yield (top,), f"neighbor {peer} remote-as {IMPORTED + 1 - side}"
        yield (top,), f"neighbor {peer} local-as {IMPORTED + side} no-prepend replace-as"
        # with one router's id at both ends, nobody wins when both of them call
        yield (top,), f"neighbor {peer} {'passive' if side else 'timers connect 1'}"
        takes = (vrf, pair[1 - side]) in joints
        yield ipv4, f"neighbor {peer} route-map {'CONNECTED' if takes else 'NOTHING'} in"
        yield ipv4, f"neighbor {peer} route-map OWN out"


def cables(joints: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """The pairs of VRFs that are joined, however many ways they import."""
    return sorted({(min(pair), max(pair)) for pair in joints})


def joint_address(number: int, side: int) -> str:
    """One end of a cable between VRFs."""
    return f"169.254.{number}.{2 + side}"


def changes(before: tuple[Line, ...], after: tuple[Line, ...]) -> tuple[list[str], list[str]]:
    """Lines to be taken away, then lines to be added, as one would type them in."""
    modes = {line[0] for line in after} | {line[0][:1] for line in after}
    away, add = [], []
    gone = [line for line in before if line not in after]
    for mode, lines in itertools.groupby(gone, key=lambda line: line[0]):
        if mode and mode[:1] not in modes:
            if f"no {mode[0]}" not in away:
                away.append(f"no {mode[0]}")
            continue
        away += [*mode, *(f"no {text}" for _, text in lines if text), *(["exit"] * len(mode))]
    new = [line for line in after if line not in before]
    for mode, lines in itertools.groupby(new, key=lambda line: line[0]):
        add += [*mode, *(text for _, text in lines if text), *(["exit"] * len(mode))]
    return away, add
