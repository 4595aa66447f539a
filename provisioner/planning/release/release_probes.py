"""Probes of a release: packets that must arrive and packets that must not, and their judgement.
Pure.

Silence proves nothing by itself. Every source has a control, an address that must answer; without
its answer, no silence from that source counts. A class of probes without a partner (the tenant's
first node, no node left in maintenance) is `none`, and the proof records that.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from zlib import crc32

from provisioner.model.certificate import Certificate
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.recovery import GateCheck, GateRow, RowVerdict
from provisioner.model.tenant import ReleaseProof, Tenant
from provisioner.planning.release.port_isolation import GateAsk

# ------------------------------------------------------------------------------
# The document that proves a release: sealed, and bound to its certificate. Pure.
#
# The seal covers every byte of the canonical JSON except itself, including the certificate's id and
# digest, so that a proof cannot be presented with another certificate. Fields with their default
# are left out of it: a field that a later version adds does not break older seals.


VERSION = 2


def render_canonical(proof: ReleaseProof) -> str:
    """The document as it is sealed: sorted keys, no blanks, no defaults, without its digest."""
    return _canonical(proof.model_dump(mode="json", exclude={"sha256"}, exclude_defaults=True))


def certificate_digest(certificate: Certificate) -> str:
    """Return the SHA-256 of a certificate's canonical JSON."""
    text = _canonical(certificate.model_dump(mode="json", exclude_defaults=True))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(document: dict[str, object]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))  # ASCII


def seal_proof(proof: ReleaseProof, certificate: Certificate | None) -> ReleaseProof:
    """Return the proof with its version, the certificate's digest and its own."""
    certificate_sha256 = "" if certificate is None else certificate_digest(certificate)
    bound = proof.model_copy(update={"version": VERSION, "certificate_digest": certificate_sha256})
    digest = hashlib.sha256(render_canonical(bound).encode()).hexdigest()
    return bound.model_copy(update={"sha256": digest})


def list_proof_objections(proof: ReleaseProof, certificate: Certificate | None) -> tuple[str, ...]:
    """Return why a proof is not valid; () if it is."""
    reasons = []
    if proof.version < VERSION:
        reasons.append("it is of version 1, which had no gate and no seal")
    elif hashlib.sha256(render_canonical(proof).encode()).hexdigest() != proof.sha256:
        reasons.append("it was changed after it was sealed")
    if certificate is None:
        reasons.append("its certificate is not there")
    elif certificate.id != proof.certificate or certificate.node != proof.node:
        reasons.append("it belongs to another certificate")
    elif proof.version >= VERSION and certificate_digest(certificate) != proof.certificate_digest:
        reasons.append("its certificate was changed since")
    if not proof.persisted:
        reasons.append("the leaves did not save the applied configuration")
    reasons += [str(row) for row in list_bad_rows(proof)]
    return tuple(reasons)


def list_bad_rows(proof: ReleaseProof) -> tuple[GateRow, ...]:
    """Return the rows that should have kept the node from its tenant."""
    return tuple(row for row in proof.gate if row.bad)


PARTNERS_MAX = 2  # of each class; every one of them probes each leaf
SMALL = 56  # bytes: ping's default; the smallest packet passes most filters
# States in which a node in the maintenance VRF has a system that the daemon can log in to.
_AWAKE = (State.CERTIFIED, State.VALIDATING)


# A canary listens at one port for each rail; perftest's own is 18515, where gate C's tests begin
RDMA_PORT = 18600
WANTED = (GateCheck.REACHES, GateCheck.HOST_ROUTE, GateCheck.RDMA)


@dataclass(frozen=True)
class Ping:
    """One probe. `what` is for a person."""

    source: str  # address
    target: str
    size: int  # payload, bytes; not fragmented. Of RDMA: the port that the canary listens at
    what: str
    check: GateCheck
    beside: bool = False  # its system may have another way there: silence on that way is no proof

    @property
    def wanted(self) -> bool:
        return self.check in WANTED


@dataclass(frozen=True)
class ProbeSet:
    host: str
    address: str  # in-band address for the login
    pings: tuple[Ping, ...]


@dataclass(frozen=True)
class Partners:
    """The other nodes, tenants and addresses that the probes are aimed at."""

    nodes: tuple[Node, ...]
    tenants: tuple[Tenant, ...]
    reached: tuple[str, ...] = ()  # "VRF=ADDRESS"
    never: tuple[str, ...] = ()
    size: int = 8972
    rdma: str = "listed"  # as the setting `release_rdma`
    canaries: tuple[str, ...] = ()  # "VRF=ADDRESS" that serve RDMA

    def choose_canary(self, node: str, vrf: str) -> str:
        """Return the address that a node tries RDMA with, spread by the node's name; "" if none."""
        mine = sorted(a for v, _, a in (c.partition("=") for c in self.canaries) if v == vrf)
        if self.rdma == "off" or not mine:
            return ""
        return mine[crc32(node.encode()) % len(mine)]


def plan_probe_sets(node: Node, ask: GateAsk, partners: Partners) -> tuple[ProbeSet, ...]:
    """Return the node's own probes first, then those from the maintenance VRF towards it."""
    hosts = [n for n in partners.nodes if n.id != node.id and n.kind is NodeKind.HOST]
    mine = tuple(p for port in _rails(node) for p in _outward(node, port, ask, partners, hosts))
    planned = [ProbeSet(node.id, node.address, mine)]
    fenced = [n for n in hosts if n.placement is Placement.MAINTENANCE and n.address]
    for canary in [n for n in fenced if n.state in _AWAKE][:PARTNERS_MAX]:
        pings = tuple(_inward(canary, node, ask, partners.size))
        if pings:
            planned.append(ProbeSet(canary.id, canary.address, pings))
    return tuple(planned)


def judge(
    sent: Sequence[ProbeSet], answers: Mapping[tuple[str, Ping], int | None], rdma: str = "listed"
) -> tuple[GateRow, ...]:
    """Return a row for each probe. `answers`: exit code of its command; None or missing: not sent.

    `rdma`: the setting; where it is "required", a missing canary is no proof.
    """
    rows: list[GateRow] = []
    for probe_set in sent:
        controls = {
            p.source
            for p in probe_set.pings
            if p.check is GateCheck.REACHES and answers.get((probe_set.host, p)) == 0
        }
        rows += [
            _row(probe_set.host, p, answers.get((probe_set.host, p)), controls)
            for p in probe_set.pings
        ]
    for check, absent_class in CLASSES.items():
        if not any(r.check is check for r in rows):
            demanded = check is GateCheck.RDMA and rdma == "required"
            verdict = RowVerdict.UNKNOWN if demanded else RowVerdict.NONE
            reading = f"no {absent_class}"
            if check is GateCheck.RDMA and rdma == "off":
                reading = "the site's settings have it off"
            rows.append(GateRow(check=check, subject="probes", verdict=verdict, seen=reading))
    return tuple(rows)


CLASSES = {
    GateCheck.REACHES: "address that must answer",
    GateCheck.HOST_ROUTE: "address that must answer",
    GateCheck.RDMA: "canary in the tenant's VRF",
    GateCheck.SHUT_OUT: "address that must not answer",
    GateCheck.SHUT_IN: "node in maintenance that could be asked to try",
}


_NO_TOOL = (126, 127)  # of a POSIX shell: cannot be executed, not found
SILENT = 1  # ping: it was sent, and no answer came
NO_ROUTE = 2  # ping: nothing was sent, as its system knows no way there
ASTRAY = 3  # as SILENT, but by another interface than that of the source's address
_FAILED = {
    GateCheck.REACHES: "no answer with {size} bytes (ping ended with {code})",
    GateCheck.HOST_ROUTE: "its system does not send this through the interface of that address",
    GateCheck.RDMA: "no RDMA at port {size} (ib_write_bw ended with {code})",
}


def _row(host: str, ping: Ping, code: int | None, controls: set[str]) -> GateRow:
    subject = f"{host} {ping.source} to {ping.target} ({ping.what})"
    if code is None or code in _NO_TOOL:
        verdict = RowVerdict.UNKNOWN
        reading = "it was not sent" + (" (no such tool)" if code else "")
    elif ping.wanted:
        verdict = RowVerdict.PASS if code == 0 else RowVerdict.FAIL
        reading = "" if code == 0 else _FAILED[ping.check].format(size=ping.size, code=code)
    elif code == 0:
        verdict = RowVerdict.FAIL
        reading = "it was answered"
    elif ping.source not in controls:
        verdict = RowVerdict.UNKNOWN
        reading = "nothing else is answered from there either"
    elif code == ASTRAY:
        verdict = RowVerdict.NONE if ping.beside else RowVerdict.UNKNOWN
        reading = "silent by another interface: its leaf was not tried"
        reading += "" if ping.beside else " (has the rail no source rule?)"
    elif code != SILENT:
        lost = code == NO_ROUTE and ping.beside  # as astray: the control went out by the same ping
        verdict = RowVerdict.NONE if lost else RowVerdict.UNKNOWN
        reading = f"it was not sent (ping ended with {code}: its system has no route there?)"
    else:
        verdict = RowVerdict.PASS
        reading = ""
    return GateRow(check=ping.check, subject=subject, verdict=verdict, seen=reading)


def _outward(
    node: Node, port: Port, ask: GateAsk, partners: Partners, others: Sequence[Node]
) -> Iterator[Ping]:
    source = host_end(port.address)
    size = _fit(partners.size, port, ask)
    assert source

    def wanted(target: str, what: str) -> Ping:
        return Ping(source, target, size, what, GateCheck.REACHES)

    def unwanted(target: str, what: str, *, beside: bool = False) -> Ping:
        return Ping(source, target, SMALL, what, GateCheck.SHUT_OUT, beside)

    def routed(target: str, what: str) -> Iterator[Ping]:
        yield wanted(target, what)
        yield Ping(source, target, SMALL, what, GateCheck.HOST_ROUTE)

    yield from routed(port.address.partition("/")[0], "its leaf")
    if canary := partners.choose_canary(node.id, ask.vrf):
        yield from routed(canary, "canary")
        if port.rail >= 0:  # the front-end carries none
            yield Ping(source, canary, RDMA_PORT + port.rail, "canary", GateCheck.RDMA)
    peers = [n for n in others if n.state is State.RELEASED and n.vrf == ask.vrf]
    for peer, address in _beside(port, peers):
        yield from routed(address, f"peer {peer.id}")
    for entry in partners.reached:
        vrf, _, address = entry.partition("=")
        if vrf in ask.storage:
            yield from routed(address, f"storage {vrf}")
        else:
            yield unwanted(address, f"storage {vrf}", beside=True)
    fenced = [n for n in others if n.placement is Placement.MAINTENANCE and n.state in _AWAKE]
    yield from (unwanted(a, f"maintenance {n.id}") for n, a in _beside(port, fenced))
    strangers = [n for n in others if n.state is State.RELEASED and n.vrf not in ("", ask.vrf)]
    yield from (unwanted(a, f"other tenant {n.id}") for n, a in _beside(port, strangers))
    for address, purpose in _management(node, port, partners):
        yield unwanted(address, purpose, beside=True)


def _inward(canary: Node, node: Node, ask: GateAsk, size: int) -> Iterator[Ping]:
    theirs = {p.rail: p for p in _rails(canary)}
    for port in _rails(node):
        own = theirs.get(port.rail)
        if own is None:
            continue
        source = host_end(own.address)
        leaf = own.address.partition("/")[0]
        yield Ping(source, leaf, _fit(size, port, ask), "its leaf", GateCheck.REACHES)
        yield Ping(source, host_end(port.address), SMALL, node.id, GateCheck.SHUT_IN)


ICMP_BYTES = 28  # of the headers of an echo by IPv4


def _fit(size: int, port: Port, ask: GateAsk) -> int:
    """Return the payload of a port's probes: less where the front-end takes smaller packets."""
    if port.rail >= 0 or not ask.front_mtu:
        return size
    return min(size, ask.front_mtu - ICMP_BYTES)


def _beside(port: Port, nodes: Iterable[Node]) -> Iterator[tuple[Node, str]]:
    """Return ends of other nodes on the same rail: the nearest to a leak on this leaf."""
    count = 0
    for node in sorted(nodes, key=lambda n: n.id):
        same = [p for p in _rails(node) if p.rail == port.rail]
        if same and count < PARTNERS_MAX:
            count += 1
            yield node, host_end(same[0].address)


def _management(node: Node, port: Port, partners: Partners) -> Iterator[tuple[str, str]]:
    """Return its own BMC, its leaf's management address, and the site's list; literal addresses."""
    for bmc in node.bmcs[:1]:
        if address := _literal(bmc.url):
            yield address, "BMC"
    leaf = next((n for n in partners.nodes if n.id == port.switch), None)
    if leaf is not None and (address := _literal(leaf.address)):
        yield address, "switch management"
    for address in partners.never:
        yield address, "never reached"


def _literal(url: str) -> str:
    try:
        return str(ipaddress.ip_address(urlsplit(url).hostname or ""))
    except ValueError:
        return ""


def _rails(node: Node) -> list[Port]:
    return sorted((p for p in node.ports if host_end(p.address)), key=lambda p: p.rail)


def host_end(address: str) -> str:
    """Return the node's address on a link: the other one of the leaf's /31 or /30; else ""."""
    if not address:
        return ""
    leaf = ipaddress.ip_interface(address)
    if leaf.version != 4 or leaf.network.prefixlen not in (30, 31):
        return ""
    return next((str(h) for h in leaf.network.hosts() if h != leaf.ip), "")
