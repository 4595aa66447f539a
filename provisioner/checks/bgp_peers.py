"""Every BGP peer of a routing DPU or switch is established, in every address family it speaks.

FRR's `show bgp vrf default summary json`, as NICo reads it on DPUs. Nothing here logs in there: a
person brings the output; peers of leaf switches are judged over NVUE when tenants are moved. Peers
by interface are the switches above (NICo judges those); peers by address may be a tenant's own, and
count only where there are no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.reading import json_of, mapping, text_of, word
from provisioner.model.health import Evidence, Finding, Gate, Severity

BGP_PEERS = Command(
    name="bgp_peers", line="vtysh -c 'show bgp vrf default summary json'", limit_s=30.0
)

_FAMILIES = ("ipv4Unicast", "ipv6Unicast", "l2VpnEvpn")


def _findings(evidence: Mapping[str, Evidence], _context: CheckContext) -> Iterator[Finding]:
    document = mapping(json_of(text_of(evidence, BGP_PEERS), "bgp"), "bgp")
    families = {name: mapping(document[name], name) for name in _FAMILIES if name in document}
    if not families:
        raise Unreadable("bgp: no address family in it")
    for family, facts in families.items():
        peers = mapping(facts.get("peers"), "peers")
        if not peers:
            yield fault(family, Severity.ISOLATE, "no BGP peer")
        if facts.get("totalPeers", len(peers)) != len(peers):
            raise Unreadable(f"bgp: {family} does not list all of its peers")
        states = {name: mapping(listed, name) for name, listed in peers.items()}
        ours = {n: p for n, p in states.items() if p.get("idType") == "interface"}
        for name, peer in (ours or states).items():
            state = word(peer.get("state"), "state")
            if state != "Established":
                words = "the BGP peer is not established"
                yield fault(f"{name} {family}", Severity.ISOLATE, words, state, "Established")


CHECK = Check("bgp_peers", Gate.A, (BGP_PEERS,), _findings, on_request=True)
