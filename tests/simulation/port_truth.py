"""What must never happen to a port, checked by code apart from what is tested and from its rig.

It knows three things only: what the switches' trees say (the truth), which rows the store was
given, and which certificates are in force. It is asked at every change of a port's forwarding, at
every row that is written, and at every step of chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from provisioner.integrations.sim.switches.switch import Switch

MAINTENANCE = "MAINT"
# What somebody does while ports and routes are being read may be missed by that reading: seconds
# for reading all VRFs of all leaves of a host, at 0.4 s a request and with what is read again.
READING_S = 8.0
# A revision that was sent before a certificate lapsed takes its course: its requests, others'
# revisions on the same leaf before it, and the time until forwarding follows.
REVISION_S = 25.0
# A port in a customer's VRF by a foreign hand is out of it within this: two looks at its leaf, of
# which one may be lost, and a revision behind others. Times in which a leaf gives no answer, or no
# daemon runs, are added (`hindered`).
FENCE_S = 240.0
NOTICE_S = 60.0  # what was in there for longer was seen: an erasure is owed


class Violated(AssertionError):
    """Something that must never happen did."""


@dataclass(frozen=True)
class Row:
    """What the daemon wrote down of a node, as far as its ports are concerned."""

    state: str
    placement: str
    vrf: str
    tenant: str
    served: str
    certificate: str


@dataclass(frozen=True)
class Issued:
    """What a certificate says of its node."""

    node: str
    drive: str
    expires_at: float


@dataclass
class PortTruth:
    """`ports`: node -> its (leaf, interface, prefix). `vrf_of`: tenant -> VRF."""

    switches: dict[str, Switch]
    ports: dict[str, tuple[tuple[str, str, str], ...]]
    vrf_of: dict[str, str]
    now: Callable[[], float]
    rows: dict[str, Row] = field(default_factory=dict)
    certificates: dict[str, Issued] = field(default_factory=dict)
    revoked: dict[str, float] = field(default_factory=dict)  # certificate -> when
    drives: dict[str, str] = field(default_factory=dict)  # node -> the drive that is in it
    swapped_at: dict[str, float] = field(default_factory=dict)  # node -> when it was exchanged
    leaked_at: dict[tuple[str, str], float] = field(default_factory=dict)  # (leaf, prefix)
    # node -> when somebody else last sent a revision that fences a port of it
    disturbed: dict[str, float] = field(default_factory=dict)
    # (leaf, interface) -> VRF that a foreign hand put it into -> when
    hands: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    inside: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)  # since when
    soiled: dict[str, float] = field(default_factory=dict)  # node -> since when it owes an erasure
    had: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # port -> VRFs it was in
    fences_s: list[float] = field(default_factory=list)  # from a foreign hand to the fence
    data: dict[str, str] = field(default_factory=dict)  # node -> tenant whose data is on it
    words: set[str] = field(default_factory=set)  # nodes whose data somebody gave up
    exposed: set[str] = field(default_factory=set)  # nodes that another customer could reach
    entered: int = 0  # ports that entered a customer VRF
    checks: int = 0
    broken: list[str] = field(default_factory=list)  # what must never happen, and did

    def __post_init__(self) -> None:
        self._owner = {
            (leaf, name): node for node, mine in self.ports.items() for leaf, name, _ in mine
        }
        assert len(self._owner) == sum(len(mine) for mine in self.ports.values())

    def lapsed_at(self, certificate: str, *, by_parts: bool = True) -> float | None:
        """When a certificate ceased to be valid: revoked, expired, or another drive is in.

        `by_parts` False: not the last, which nobody is told of before all parts are read again.
        """
        issued = self.certificates.get(certificate)
        if issued is None:
            return 0.0
        ends = [self.revoked[certificate]] if certificate in self.revoked else []
        if self.now() >= issued.expires_at:
            ends.append(issued.expires_at)
        if by_parts and self.drives.get(issued.node) != issued.drive:
            ends.append(self.swapped_at.get(issued.node, 0.0))
        return min(ends, default=None)

    def swap(self, node: str, drive: str) -> None:
        """People put another drive into a host, which goes on running."""
        self.drives[node] = drive
        self.swapped_at[node] = self.now()

    def judge(self) -> None:
        """Raises `Violated`: not where it was seen, since that is inside of what is tested."""
        if self.broken:
            raise Violated("; ".join(self.broken[:3]))

    # --- what is told

    def port_moved(self, leaf: str, interface: str) -> None:
        """Forwarding of a port has changed just now."""
        node = self._owner.get((leaf, interface))
        if node is None:
            return
        there = self.switches[leaf].get_vrf(interface)
        self._left(node, (leaf, interface), there)
        if self._by_hand(leaf, interface, there):
            if there not in self._allowed(node, self.rows[node]):
                self.inside[leaf, interface] = (there, self.now())
        elif there not in ("default", MAINTENANCE):
            self.entered += 1
            lapsed = self.lapsed_at(self.rows[node].certificate, by_parts=False)
            if lapsed is not None and self.now() - lapsed > REVISION_S:
                self._broken(f"{leaf}/{interface} entered {there}: {node} has no valid certificate")
        self.look_at(node)

    def row_written(self, node: str, row: Row) -> None:
        """The daemon wrote this down."""
        before = self.rows.get(node)
        self.rows[node] = row
        if row.state == "released" and (before is None or before.state != "released"):
            if self.data.get(node, row.tenant) != row.tenant:
                self._broken(f"{node}: data of {self.data[node]} reached {row.tenant}")
            self.data[node] = row.tenant
            self.words.discard(node)
            self.exposed.discard(node)
            lapsed = self.lapsed_at(row.certificate)
            swapped = self.now() - self.swapped_at.get(node, 0.0) <= READING_S
            if lapsed is not None and (not swapped or row.certificate in self.revoked):
                self._broken(f"{node} was released without a valid certificate")
            self._no_leak(node, row.vrf)
            if node in self.soiled and self.soiled[node] < self.now() - READING_S:
                self._broken(f"{node} was released, not erased since it stood elsewhere")
            if self.now() - self.disturbed.get(node, 0.0) > READING_S:
                self.disturbed.pop(node, None)  # it was before: the release has seen it
        if before is not None and row.placement != before.placement:
            # a fence that is not confirmed is "mixed" as well, and leaves `served` as it was; only
            # a release sets it, of a node that owes no erasure
            leaving = row.placement == "mixed" and row.state == "certified"
            leaving = leaving and bool(row.tenant) and row.served == row.tenant != before.served
            if leaving and self.lapsed_at(row.certificate) is not None:
                self._broken(f"{node}: a release was begun without a valid certificate")
        for leaf, interface, _ in self.ports[node]:
            vrf, _ = self.inside.get((leaf, interface), ("", 0.0))
            if vrf in self._allowed(node, row):  # it goes there by right meanwhile
                del self.inside[leaf, interface]
        self.look_at(node)

    def hand(self, leaf: str, interface: str, vrf: str) -> None:
        """Somebody else puts a port into a customer's VRF, or will with the leaf's next start."""
        self.hands.setdefault((leaf, interface), {})[vrf] = self.now()

    def hindered(self, seconds: float, leaf: str = "", *, unseen: bool = False) -> None:
        """Nobody can fence anything for so long, or see it: on this leaf, or on any."""
        for (name, _), vrfs in self.hands.items():
            if leaf in ("", name):
                vrfs.update({vrf: at + seconds for vrf, at in vrfs.items()})
        for port, (vrf, since) in self.inside.items():
            if unseen and leaf in ("", port[0]):
                self.inside[port] = (vrf, since + seconds)

    def erased(self, node: str) -> None:
        """The host has nothing of anybody's any more."""
        if node in self.data.keys() - self.words - self.exposed - self.soiled.keys():
            self._broken(f"{node}: the disks of {self.data[node]} were erased, who was not exposed")
        self.data.pop(node, None)
        self.soiled.pop(node, None)

    def _by_hand(self, leaf: str, interface: str, vrf: str) -> bool:
        at = self.hands.get((leaf, interface), {}).get(vrf)
        return at is not None and self.now() - at <= FENCE_S

    def _left(self, node: str, port: tuple[str, str], there: str) -> None:
        """A port has left a network that a foreign hand had put it into."""
        vrf, since = self.inside.get(port, ("", 0.0))
        if not vrf or vrf == there:
            return
        del self.inside[port]
        self.fences_s.append(max(0.0, self.now() - since))
        if self.now() - since > NOTICE_S:
            self.soiled[node] = since

    # --- what is looked at

    def look(self) -> None:
        """Every node."""
        for node in self.rows:
            self.look_at(node)

    def look_at(self, node: str) -> None:
        """Whether a node's ports are only where what is written down of it allows."""
        row = self.rows.get(node)
        if row is None:
            return
        self.checks += 1
        allowed = self._allowed(node, row)
        for leaf, interface, _ in self.ports[node]:
            switch = self.switches[leaf]
            for name, tree in self._trees(switch, row):
                there = tree["interface"][interface].get("ip", {}).get("vrf") or "default"
                if there not in allowed and not self._by_hand(leaf, interface, there):
                    self._broken(
                        f"{leaf}/{interface} of {node} is in {there} ({name}), written down is "
                        f"{row.state}, {row.placement} {row.vrf}, tenant {row.tenant}"
                    )

    def at_rest(self, node: str) -> None:
        """Nobody works on this node: every port is known, and in one VRF whatever is asked."""
        row = self.rows[node]
        if row.state == "draining":
            return  # somebody has asked for it again meanwhile
        if row.placement not in ("maintenance", "customer"):
            self._broken(f"{node} rests as {row.state}, and its ports are {row.placement}")
        self.look_at(node)

    def _allowed(self, node: str, row: Row) -> set[str]:
        if row.placement == "maintenance":
            return {MAINTENANCE}
        if row.placement == "customer":
            fenced = row.state == "draining" or node in self.disturbed
            return {row.vrf, MAINTENANCE} if fenced else {row.vrf}
        if row.placement == "mixed":
            names = {row.tenant, *row.served.split(", ")}
            theirs = {vrf for tenant, vrf in self.vrf_of.items() if tenant in names}
            cabled = {"default"} if row.state == "intake" else set()  # a first fence, half done
            return {MAINTENANCE, *theirs, *cabled}
        return {"default", MAINTENANCE}  # just cabled

    def _trees(self, switch: Switch, row: Row) -> tuple[tuple[str, dict], ...]:
        """A port that is proved is the same in all three; what a reboot would bring included."""
        trees = (
            ("operational", switch.operational),
            ("applied", switch.applied),
            ("startup", switch.startup),
        )
        return trees if row.placement in ("maintenance", "customer") else trees[:2]

    def _no_leak(self, node: str, vrf: str) -> None:
        for leaf, _, prefix in self.ports[node]:
            other = self.switches[leaf].leaks.get(prefix, vrf)
            if other == vrf:
                continue
            if self.now() - self.leaked_at[leaf, prefix] > READING_S:
                self._broken(f"{node} was released while {prefix} leaks into {other} on {leaf}")

    def _broken(self, words: str) -> None:
        self.broken.append(f"at {self.now():.1f}: {words}")
