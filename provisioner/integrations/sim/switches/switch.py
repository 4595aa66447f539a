"""The true state of one simulated Cumulus switch: configuration, forwarding, images, power.

The rule that a reader would otherwise break: `applied` is an intention. Only `operational`, which
follows it after `settle_s`, is a port's true state, and only `startup` survives a reboot
(docs/sources/switches.md#settle). No protocol in here.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.hardware.parts import Event
from provisioner.integrations.sim.switches.nvue_schema import take_over

# ------------------------------------------------------------------------------
# A switch's configuration as a tree: merges, revisions, and NVUE's validation.


Tree = dict[str, Any]

VRF_NAME_MAX = 15  # characters (docs/sources/switches.md#vrf)
VRFS_MAX = 255
# Cumulus Linux guide, "Interface Configuration and Management", "Interface Descriptions": at most
# 256 characters, neither apostrophes nor non-ASCII ones
DESCRIPTION_MAX = 256


@dataclass
class Revision:
    """Pending changes: operations in order, each (path, value); None deletes."""

    id: str
    changes: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)
    state: str = "pending"
    issue: Tree = field(default_factory=dict)
    progress: str = ""


def find_problems(tree: Tree, applied: Tree) -> str:
    """NVUE's reason to reject this configuration; "" if it is valid."""
    vrfs = tree.get("vrf")
    interfaces = tree.get("interface")
    if not isinstance(vrfs, dict) or not isinstance(interfaces, dict):
        return "the configuration has no interfaces or no VRFs"
    if len(vrfs) > VRFS_MAX:
        return f"more than {VRFS_MAX} VRFs"
    if long := [v for v in vrfs if len(v) > VRF_NAME_MAX]:
        return f"VRF name {long[0]} is longer than {VRF_NAME_MAX} characters"
    bundled: set[str] = set()
    for name, entry in interfaces.items():
        if name not in applied["interface"] and entry.get("type") not in ("bond", "svi"):
            return f"interface {name} does not exist"
        members = set(entry.get("bond", {}).get("member", {}))
        if shared := members & bundled:  # the guide, "Bonding - Link Aggregation"
            return f"interface {min(shared)} cannot belong to multiple bonds"
        bundled |= members
        address = entry.get("ip", {}) if isinstance(entry, dict) else {}
        if address.get("vrf", "default") not in vrfs:
            return f"interface {name}: vrf {address['vrf']} does not exist"
        text = entry.get("description", "") if isinstance(entry, dict) else ""
        if not isinstance(text, str) or not text.isascii() or "'" in text:
            return f"interface {name}: the description has characters that are not parsed"
        if len(text) > DESCRIPTION_MAX:
            return f"interface {name}: the description is longer than {DESCRIPTION_MAX} characters"
    return ""


def image_version(body: bytes) -> str | None:
    """The version inside a simulated switch image, or None for any other file."""
    try:
        image = json.loads(body)
        contents = image["contents"]
        if image["simulated"] is True and image["target"] == "switch.os" and len(contents) == 1:
            return str(next(iter(contents.values())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return None


def merge_at(tree: Tree, path: tuple[str, ...], value: Any) -> None:
    """Merge `value` into the tree at `path`; None deletes the subtree."""
    node = tree
    for key in path[:-1]:
        inner = node.get(key)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = node[key] = {}
        node = inner
    if not path:
        _merge(tree, value if isinstance(value, dict) else {})
    elif value is None:
        node.pop(path[-1], None)
    elif isinstance(value, dict) and isinstance(node.get(path[-1]), dict):
        _merge(node[path[-1]], value)
    else:
        node[path[-1]] = value


def _merge(tree: Tree, change: Tree) -> None:
    for key, value in change.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict):
            inner = tree.get(key)
            if not isinstance(inner, dict):
                inner = tree[key] = {}
            _merge(inner, value)
        else:
            tree[key] = value


@dataclass
class Planted:
    """Faults. VRFs, prefixes and interfaces by name."""

    routes: list[tuple[str, str, str, str]] = field(default_factory=list)  # VRF prefix how via-VRF
    missing: set[str] = field(default_factory=set)  # prefixes in no table
    soft: set[str] = field(default_factory=set)  # prefixes missing in the ASIC
    peers: dict[tuple[str, str], Tree] = field(default_factory=dict)  # (VRF, peer) -> its entry
    neighbours: list[tuple[str, str, str]] = field(default_factory=list)  # interface address MAC
    macs: dict[str, str] = field(default_factory=dict)  # MAC -> interface, in a bridge
    links: dict[str, Tree] = field(default_factory=dict)  # interface -> its link document
    lldp: dict[str, tuple[str, str]] = field(default_factory=dict)  # interface -> true neighbour
    silent: set[str] = field(default_factory=set)  # interfaces that LLDP does not pass
    targets: dict[str, set[str]] = field(default_factory=dict)  # VNI -> additional imports
    issues: dict[str, str] = field(default_factory=dict)  # of the switch's health
    qos: Tree = field(default_factory=dict)
    adaptive: Tree = field(default_factory=dict)
    flaps: dict[str, int] = field(default_factory=dict)  # interface -> additional carrier changes
    paths: set[tuple[str, str]] = field(default_factory=set)  # packets pass from VRF to VRF
    drops: set[str] = field(default_factory=set)  # interfaces that drop everything
    no_rdma: set[str] = field(default_factory=set)  # interfaces that drop only RDMA
    errors: dict[str, int] = field(default_factory=dict)  # interface -> damaged frames it received
    port_qos: dict[str, Tree] = field(default_factory=dict)  # interface -> its differences
    busy: set[str] = field(default_factory=set)  # interfaces with permanent traffic
    # interface -> PFC frames a second that its host sends, and whether a queue is stuck
    pausing: dict[str, float] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    segments: dict[str, Tree] = field(default_factory=dict)  # bond -> its row's differences
    mlag: Tree = field(default_factory=dict)  # of the MLAG that it is in; {}: it has none
    optics: dict[str, Tree] = field(default_factory=dict)  # interface -> its module's differences
    filters_ignored: bool = False  # the hardware forwards what its access lists deny


Fetch = Callable[[str, Callable[[bytes | None], None]], None]  # URL, then the body or None


@dataclass(frozen=True)
class SwitchDurations:
    """Durations on a switch, in seconds; each gets 5 percent of seeded jitter."""

    verify_s: float = 1.5  # from "apply" to verified
    apply_s: float = 2.5  # from verified to applied
    settle_s: float = 1.5  # from applied to operational
    fetch_s: float = 60.0
    install_s: float = 240.0
    reboot_s: float = 300.0  # no answers meanwhile

    def scale(self, factor: float) -> SwitchDurations:
        """All durations times `factor`."""
        return replace(self, **{f.name: getattr(self, f.name) * factor for f in fields(self)})


@dataclass(frozen=True)
class Neighbour:
    """The LLDP neighbour at the other end of a cable."""

    system: str
    port: str  # "rail3"
    mac: str
    up: Callable[[], bool] = lambda: True


class Switch:
    """A leaf or spine. Every method with an effect takes its time as an argument."""

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        *,
        seed: str,
        version: str,
        durations: SwitchDurations | None = None,
        username: str = "cumulus",
        password: str = "cumulus",  # noqa: S107 (the factory's, publicly documented)
    ) -> None:
        self.name = name
        self.schedule = schedule
        self.durations = durations or SwitchDurations()
        self.rng = random.Random(seed)
        self.serial = f"MT{self.rng.randrange(2300, 2500)}X{self.rng.randrange(10**5):05d}"
        self.mac = "9c:05:91:" + ":".join(f"{self.rng.randrange(256):02x}" for _ in range(3))
        self.username = username
        self.password = password
        self.password_expired = False  # the factory password: everything is answered with 403
        self.applied: Tree = {
            "system": {"hostname": name},
            "interface": {
                "eth0": {"type": "eth", "ip": {"vrf": "mgmt"}},
                "lo": {"type": "loopback"},
            },
            "vrf": {"default": {}, "mgmt": {}},
            "evpn": {"enable": "on"},
            "nve": {"vxlan": {"enable": "on"}},
        }
        self.applied = take_over(version, self.applied)
        self.startup: Tree = copy.deepcopy(self.applied)
        self.operational: Tree = copy.deepcopy(self.applied)
        self.revisions: dict[str, Revision] = {}
        self.neighbours: dict[str, Neighbour] = {}
        # bond, or the interface of its VLAN -> its members
        self.bonded: dict[str, tuple[str, ...]] = {}
        self.partitions: dict[int, str | None] = {1: version, 2: None}
        self.current = self.next = 1
        self.files: dict[str, bytes] = {}
        self.down_until = 0.0
        self.boots = 0
        self.log: list[Event] = []
        self.faults: set[str] = set()
        self.leaks: dict[str, str] = {}  # prefix -> VRF that it leaks into
        self.planted = Planted()
        self.overlay: tuple[Switch, ...] = ()  # other leaves that send it their routes
        self.servers: dict[str, str] = {}  # address of another device -> its VRF
        self.fetch: Fetch = lambda _url, done: done(None)
        self._applying: list[Revision] = []
        self._numbered = 0

    # --- shared helpers

    @property
    def version(self) -> str:
        """The version of the running image."""
        return self.partitions[self.current] or ""

    def is_up(self, now: float) -> bool:
        """Whether it forwards and answers."""
        return now >= self.down_until

    def link_up(self, interface: str, now: float) -> bool:
        """Whether a port has carrier: this switch and the device at its cable are up."""
        if members := self.bonded.get(interface):
            return any(self.link_up(member, now) for member in members)
        neighbour = self.neighbours.get(interface)
        if self.planted.links and self.planted.links.get(interface, {}).get("down"):
            return False
        return self.is_up(now) and (neighbour is None or neighbour.up())

    def add_jitter(self, seconds: float) -> float:
        """A duration with its jitter, in seconds."""
        return seconds * self.rng.uniform(0.95, 1.05)

    def log_event(self, now: float, kind: str, subject: str, detail: str = "") -> None:
        """Append a line to the ground truth."""
        self.log.append(Event(now, kind, subject, detail))

    def add_port(
        self, interface: str, address: str = "", neighbour: Neighbour | None = None
    ) -> None:
        """Add a front-panel port that exists from the start, in the default VRF."""
        for tree in (self.applied, self.startup, self.operational):
            entry: Tree = {"type": "swp"}
            if address:
                entry["ip"] = {"address": {address: {}}}
            tree["interface"][interface] = entry
        if neighbour is not None:
            self.neighbours[interface] = neighbour

    def add_vrf(self, name: str, asn: int) -> None:
        """Add a VRF with its BGP, preconfigured as the reference design requires."""
        for tree in (self.applied, self.startup, self.operational):
            tree["vrf"][name] = {"router": {"bgp": {"enable": "on", "autonomous-system": asn}}}

    def add_bond(self, member: str, bond: str, vlan: int, attached: Tree) -> str:
        """Put a port into a bond in a VLAN of its own, whose interface takes the port's place.

        `attached`: what makes it one of several leaves. Returns the interface.
        """
        svi = f"vlan{vlan}"
        for tree in (self.applied, self.startup, self.operational):
            ports = tree["interface"]
            ports[svi] = {**ports[member], "type": "svi", "vlan": vlan}
            ports[member] = {"type": "swp"}
            ports[bond] = {
                "type": "bond",
                "bond": {"mode": "lacp", "member": {member: {}}, **attached.get("bond", {})},
                "bridge": {"domain": {"br_default": {"access": vlan}}},
                "evpn": copy.deepcopy(attached.get("evpn", {})),
            }
        self._bundle()
        return svi

    def _bundle(self) -> None:
        """Follow the bonds of the configuration in force: members, VLANs, and what is learned."""
        ports = self.operational["interface"]
        self.bonded = {}
        for bond, entry in ports.items():
            members = tuple(sorted(entry.get("bond", {}).get("member", {})))
            access = entry.get("bridge", {}).get("domain", {}).get("br_default", {}).get("access")
            if not members:
                continue
            self.bonded[bond] = members
            if access is not None and f"vlan{access}" in ports:
                self.bonded[f"vlan{access}"] = members
            for member in members:
                if member in self.neighbours:
                    self.planted.macs[self.neighbours[member].mac] = bond

    def find_routed(self, interface: str) -> str:
        """The interface of the VLAN that a member of a bond is in; of any other port itself."""
        routed = (n for n, m in self.bonded.items() if interface in m and n.startswith("vlan"))
        return next(routed, interface)

    def get_vrf(self, interface: str) -> str:
        """The true VRF of this port now; "default" if it is in no other."""
        entry = self.operational["interface"].get(interface, {})
        return str(entry.get("ip", {}).get("vrf") or "default")

    # --- configuration

    def new_revision(self) -> Revision:
        """An empty change set."""
        self._numbered += 1
        revision = Revision(id=str(self._numbered))
        self.revisions[revision.id] = revision
        while len(self.revisions) > 100:  # enough for a long demo; the oldest is removed
            del self.revisions[next(iter(self.revisions))]
        return revision

    def build_tree(self, revision: Revision) -> Tree:
        """The configuration with this revision applied."""
        tree = copy.deepcopy(self.applied)
        for path, value in revision.changes:
            merge_at(tree, path, copy.deepcopy(value))
        return tree

    def apply(self, revision: Revision, now: float) -> None:
        """Start to apply; revisions are applied in the order of the requests."""
        revision.state = "verifying"
        revision.progress = "Verifying config"
        self._applying.append(revision)
        if len(self._applying) == 1:
            self._verify_next(now)

    def _verify_next(self, now: float) -> None:
        boots = self.boots

        def verify_revision(at: float) -> None:
            if boots != self.boots:
                return
            revision = self._applying[0]
            problem = find_problems(self.build_tree(revision), self.applied)
            if problem or "apply_fails" in self.faults:
                detail = problem or "switchd did not accept the configuration"
                revision.state = "invalid"
                revision.progress = "Invalid config"
                revision.issue = {"0": {"code": "config_invalid", "message": detail}}
                self.log_event(at, "config_invalid", self.name, detail)
                self._next_in_line(at)
                return
            revision.state = "reloading"
            revision.progress = "Applying config"
            if "apply_hangs" not in self.faults:
                self.schedule.plan_act(at + self.add_jitter(self.durations.apply_s), apply_revision)

        def apply_revision(at: float) -> None:
            if boots != self.boots:
                return
            revision = self._applying[0]
            self.applied = self.build_tree(revision)
            self._take_password()
            saving = self.applied["system"].get("config", {}).get("auto-save", {})
            revision.state = "applied"
            revision.progress = ""
            if saving.get("enable") == "on":
                revision.state = "applied_and_saved"
                self.startup = copy.deepcopy(self.applied)
            self.log_event(at, "config_applied", self.name, f"revision {revision.id}")
            target = copy.deepcopy(self.applied)
            self.schedule.plan_act(
                at + self.add_jitter(self.durations.settle_s), lambda t: settle_ports(target, t)
            )
            self._next_in_line(at)

        def settle_ports(target: Tree, at: float) -> None:
            if boots == self.boots and "moves_ignored" not in self.faults:
                self._become(target, at)

        self.schedule.plan_act(now + self.add_jitter(self.durations.verify_s), verify_revision)

    def _take_password(self) -> None:
        """Activate a new password of the API's user at once; only its hash is kept."""
        users = self.applied["system"].get("aaa", {}).get("user", {})
        user = users.get(self.username) if isinstance(users, dict) else None
        if isinstance(user, dict) and isinstance(user.get("password"), str):
            self.password = user.pop("password")
            user["hashed-password"] = "*"

    def _next_in_line(self, now: float) -> None:
        self._applying.pop(0)
        if self._applying:
            self._verify_next(now)

    def _become(self, target: Tree, now: float) -> None:
        """Make forwarding follow the configuration; log every port that changes its VRF."""
        before = {name: self.get_vrf(name) for name in self.operational["interface"]}
        self.operational = target
        self._bundle()
        for name in target["interface"]:
            if before.get(name, "default") != self.get_vrf(name):
                detail = f"{before.get(name, 'default')} -> {self.get_vrf(name)}"
                self.log_event(now, "vrf", f"{self.name}/{name}", detail)

    def save(self, now: float) -> None:
        """Make the applied configuration survive a reboot."""
        if "save_lost" not in self.faults:
            self.startup = copy.deepcopy(self.applied)
        self.log_event(now, "config_saved", self.name)

    # --- images

    def store_image(self, file_name: str, body: bytes | None, now: float) -> str:
        """Store a downloaded file; return an error text, or ""."""
        if body is None or "image_fetch_fails" in self.faults:
            return f"could not fetch {file_name}"
        self.files[file_name] = body
        self.log_event(now, "image_fetched", self.name, file_name)
        return ""

    def install_image(self, file_name: str, now: float) -> str:
        """Write a downloaded image into the inactive partition; return an error text, or ""."""
        version = image_version(self.files.get(file_name, b""))
        if version is None:
            return f"{file_name} is not a Cumulus Linux image"
        if "image_install_fails" in self.faults:
            return "not enough space on the other partition"
        inactive = 2 if self.current == 1 else 1
        self.partitions[inactive] = version
        self.log_event(now, "push", f"{self.name}/switch.os", version)
        return ""

    def reboot(self, now: float) -> None:
        """Boot the next partition with the startup configuration; unsaved changes are lost."""
        self.boots += 1
        self.down_until = now + self.add_jitter(self.durations.reboot_s)
        self.log_event(now, "reset", self.name, "reboot")
        for revision in self._applying:
            revision.state = "aborted"
        self._applying.clear()
        if self.partitions[self.next] and "boot_falls_back" not in self.faults:
            self.current = self.next
        self.next = self.current
        self.startup = take_over(self.version, self.startup)
        self.applied = copy.deepcopy(self.startup)
        boots = self.boots
        target = copy.deepcopy(self.startup)

        def finish_reboot(at: float) -> None:
            if boots == self.boots:
                self._become(target, at)
                self.log_event(at, "boot", self.name, self.version)

        self.schedule.plan_act(self.down_until, finish_reboot)
