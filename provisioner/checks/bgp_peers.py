"""Every BGP peer of a routing DPU or switch is established in every address family that it uses.

The check reads FRR's `show bgp vrf default summary json`, as NICo does on DPUs. The daemon does not
log in to the DPU: a person supplies the output. Peers of leaf switches are judged over the switch's
API when tenants are moved. Peers by interface are the switches above (NICo judges those); peers by
address may belong to a tenant, so they count only where no peer by interface exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import (
    parse_json,
    read_output,
    require_object,
    require_text,
)
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

BGP_PEERS = Command(
    name="bgp_peers", line="vtysh -c 'show bgp vrf default summary json'", limit_s=30.0
)

# FRR's own verdict; else "Policy" (no route passes without one, RFC 8212), "Admin" or "PfxCt"
# source: FRRouting/frr, bgpd/bgp_vty.c, bgp_show_summary
_FINE = "OK"
_FAMILIES = ("ipv4Unicast", "ipv6Unicast", "l2VpnEvpn")


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    document = require_object(parse_json(read_output(evidence, BGP_PEERS), "bgp"), "bgp")
    families = {
        name: require_object(document[name], name) for name in _FAMILIES if name in document
    }
    if not families:
        raise Unreadable("bgp: no address family in it")
    for family, facts in families.items():
        peers = require_object(facts.get("peers"), "peers")
        if not peers:
            yield fault(family, Severity.ISOLATE, "no BGP peer")
        if facts.get("totalPeers", len(peers)) != len(peers):
            raise Unreadable(f"bgp: {family} does not list all of its peers")
        states = {name: require_object(listed, name) for name, listed in peers.items()}
        ours = {n: p for n, p in states.items() if p.get("idType") == "interface"}
        for name, peer in (ours or states).items():
            state = require_text(peer.get("state"), "state")
            if state != "Established":
                detail = "the BGP peer is not established"
                yield fault(f"{name} {family}", Severity.ISOLATE, detail, state, "Established")
            elif (verdict := peer.get("peerState", _FINE)) != _FINE:
                detail = "FRR says that the BGP peer exchanges no routes"
                yield fault(f"{name} {family}", Severity.ISOLATE, detail, verdict, _FINE)


CHECK = Check("bgp_peers", Gate.A, (BGP_PEERS,), _findings, on_request=True)
