"""One switch of FRRouting and the kernel's network: it does what a configuration says.

Rule: what is there is read from the kernel each time, never remembered; only the lines that were
given to FRRouting are, as NVUE remembers what it rendered. So a port that somebody moved by hand
stays where it is until the configuration speaks of it again, as on a switch.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import frr_filters
import frr_netlink
from frr_boxes import READY_S, Router
from frr_netlink import Link
from frr_rendering import DEFAULT, Wanted, cables, changes, joint_address, wanted

FAMILY = {4: "ip", 6: "ipv6"}
MISSED_S = 2.0  # what zebra has not seen after so long, it has missed
OVERLAY_MTU = 9166  # of a VXLAN device over links of 9216 bytes


class FrrSwitch(Router):
    """A router that takes NVUE configurations. `ports`: its front-panel ports, cabled by others."""

    def __init__(self, name: str, folder: Path) -> None:
        self.rendered = Wanted()
        self._netlink: dict[tuple[str, int], socket.socket] = {}  # by VRF and its namespace
        self._asking = threading.Lock()
        super().__init__(name, folder, vrfs=True)

    def vrfs(self) -> list[str]:
        """The VRFs that the kernel has, besides the default one."""
        return sorted(p.name for p in Path(f"/proc/{self.pid}/root/run/netns").iterdir())

    def interfaces(self, *, neighbours: bool = False) -> dict[str, tuple[str, Link]]:
        """Every interface but loopbacks, with the VRF that the kernel has it in."""
        found = {}
        for vrf in (DEFAULT, *self.vrfs()):
            with self._asking:
                told = frr_netlink.links(self._line(vrf), neighbours=neighbours)
            found |= {name: (vrf, link) for name, link in told.items() if name != "lo"}
        return found

    def stop(self, *names: str) -> None:
        if not names:
            for line in self._netlink.values():
                line.close()
        super().stop(*names)

    def _delete(self, vrf: str) -> None:
        """A socket in it would keep the namespace, and all that is in it, alive."""
        with self._asking:
            for key in [k for k in self._netlink if k[0] == vrf]:
                self._netlink.pop(key).close()
        self.run("ip", "netns", "delete", vrf)

    def _line(self, vrf: str) -> socket.socket:
        """A socket in the VRF's namespace of now."""
        path = f"/proc/{self.pid}/root/run/netns/{vrf}"
        key = vrf, 0 if vrf == DEFAULT else Path(path).stat().st_ino
        if key not in self._netlink:
            self._netlink[key] = self.socket(*frr_netlink.FAMILY, vrf=vrf)
        return self._netlink[key]

    def carry_out(self, tree: Mapping[str, Any]) -> None:
        """Bring kernel and FRRouting to this configuration."""
        want, had = wanted(tree), self.rendered
        there = set(self.vrfs())
        if want.loopback and want.loopback != had.loopback:
            self.ip(f"address replace {want.loopback} dev lo")
        self._new_vrfs(sorted(set(want.vrfs) - there))
        self._join(want, had)
        self._configure("zebra", want.zebra, had.zebra)
        self._configure("bgpd", want.bgpd, had.bgpd)  # without EVPN, zebra takes up no L3VNI
        for vrf, vni in want.vrfs.items():
            if vni != had.vrfs.get(vrf, 0) or vrf not in there:
                self._overlay(vrf, had.vrfs.get(vrf, 0) if vrf in there else 0, vni, want)
        self._ports(want)
        self._filters(want, had)
        for vrf in sorted(there - set(want.vrfs)):
            self._delete(vrf)
        self.rendered = want

    def reboot(self, tree: Mapping[str, Any]) -> None:
        """As a power cut: nothing but the cables stays, then it starts with this configuration."""
        self.halt()
        for name, entry in self.interfaces().items():
            if name.startswith(("swp", "eth")):
                self._put(name, entry[0], DEFAULT, ())
        for vrf in self.vrfs():
            self._delete(vrf)
        self.ip("address flush dev lo")
        self.rendered = Wanted()
        self.boot()
        self.carry_out(tree)

    def _new_vrfs(self, names: list[str]) -> None:
        """All at once: zebra takes up new namespaces once a second."""
        for vrf in names:
            self.run("ip", "netns", "add", vrf)
            self.sysctl(vrf)
            self.ip("link set lo up", vrf=vrf)

        def known() -> bool:
            listed = self.show("zebra", "show vrf")
            return all(f"vrf {vrf} " in listed for vrf in names)

        if names:
            self._until(known, f"VRFs {names}")

    def _join(self, want: Wanted, had: Wanted) -> None:
        """Cables between VRFs that import from each other."""
        after = {pair: n for n, pair in enumerate(cables(want.joints))}
        before = {pair: n for n, pair in enumerate(cables(had.joints))}
        for pair, number in before.items():
            if after.get(pair) != number and pair[0] in self.vrfs():
                self.ip(f"link delete joint{number}", vrf=pair[0])
        for pair, number in after.items():
            if before.get(pair) == number:
                continue
            name = f"joint{number}"
            self.ip(
                f"link add {name} mtu {OVERLAY_MTU} type veth peer name {name} netns {pair[1]}",
                vrf=pair[0],
            )
            for side, vrf in enumerate(pair):
                address = joint_address(number, side)
                self.ip(
                    f"address add {address}/31 dev {name}",
                    f"link set {name} mtu {OVERLAY_MTU} up",
                    vrf=vrf,
                )

    def _overlay(self, vrf: str, old: int, vni: int, want: Wanted) -> None:
        """The VXLAN device of an L3VNI: in its VRF, its packets in the default one."""
        if old:
            self.ip(f"link delete vni{old}", f"link delete br{old}", vrf=vrf)
        if not vni:
            return
        local = want.loopback.partition("/")[0]
        name, bridge = f"vni{vni}", f"br{vni}"
        self.ip(
            f"link add {name} type vxlan id {vni} local {local} dstport 4789 nolearning",
            f"link set {name} netns {vrf}",
        )
        self.ip(
            f"link add {bridge} mtu {OVERLAY_MTU} type bridge",
            f"link set {bridge} addrgenmode none up",
            f"link set {name} mtu {OVERLAY_MTU} addrgenmode none",
            vrf=vrf,
        )
        until = time.monotonic() + READY_S
        # zebra takes the bridge for the L3VNI's only if it hears of both before of their bond
        while not self._overlay_up(vni):
            assert time.monotonic() < until, f"{self.name}: L3VNI {vni} does not come up"
            self.ip(f"link set {name} nomaster", vrf=vrf)
            time.sleep(0.03)
            self.ip(f"link set {name} master {bridge}", f"link set {name} up", vrf=vrf)
            time.sleep(0.07)

    def _overlay_up(self, vni: int) -> bool:
        answer = self.show("zebra", f"show evpn vni {vni} json")
        return bool(json.loads(answer or "{}").get("state") == "Up")

    def _ports(self, want: Wanted) -> None:
        there = self.interfaces()
        put = {}
        for name, (vrf, addresses) in want.ports.items():
            if name not in there:
                continue
            now, link = there[name]
            if now != vrf or link.addresses != set(addresses):
                self._put(name, now, vrf, addresses)
                put[name] = vrf, addresses
        self._make_known(put)

    def _make_known(self, put: dict[str, tuple[str, tuple[str, ...]]]) -> None:
        """Wait until zebra has these ports where the kernel has them.

        On a busy machine it misses some that change their namespace: these are put down and up.
        """
        until = time.monotonic() + READY_S
        again = time.monotonic() + MISSED_S
        while put := {n: p for n, p in put.items() if not self._is_known(n, *p)}:
            assert time.monotonic() < until, f"{self.name}: zebra does not see {sorted(put)}"
            if time.monotonic() > again:
                again = time.monotonic() + MISSED_S
                for name, (vrf, addresses) in put.items():
                    self.ip(f"link set {name} down", vrf=vrf)
                    self._put(name, vrf, vrf, addresses)
            time.sleep(0.02)

    def _is_known(self, name: str, vrf: str, addresses: tuple[str, ...]) -> bool:
        seen = json.loads(self.show("zebra", f"show interface {name} vrf {vrf} json") or "{}")
        entry = seen.get(name, {})
        if not set(addresses) <= {listed["address"] for listed in entry.get("ipAddresses", ())}:
            return False
        if entry.get("operationalStatus") != "up":
            return True  # without a carrier it has no routes
        networks = [ipaddress.ip_interface(address).network for address in addresses]
        return all(
            self.show("zebra", f"show {FAMILY[net.version]} route vrf {vrf} {net} json").strip(
                "{}\n "
            )
            for net in networks
        )

    def _put(self, name: str, old: str, vrf: str, addresses: tuple[str, ...]) -> None:
        if old != vrf:
            target = str(self.pid) if vrf == DEFAULT else vrf
            self.ip(f"link set {name} netns {target}", vrf=old)
        self.ip(
            f"address flush dev {name} scope global",
            *(f"address add {a} dev {name}" for a in addresses),
            f"link set {name} up",
            vrf=vrf,
        )

    def _filters(self, want: Wanted, had: Wanted) -> None:
        """Anew in every VRF with filtered ports, before or after."""
        filtered = {vrf: set[str]() for vrf in (*self._filtered(had), *self._filtered(want))}
        for name in want.bound:
            filtered[want.ports[name][0]].add(name)
        for vrf, ports in filtered.items():
            if vrf != DEFAULT and vrf not in self.vrfs():
                continue
            for family, command in frr_filters.COMMANDS.items():
                text = frr_filters.table(want.acls, want.bound, ports, family)
                self.run(*_inside(vrf), f"{command}-restore", stdin=text)

    def filters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The access lists that the kernel has, and those that each port has."""
        acls: dict[str, Any] = {}
        bound: dict[str, Any] = {}
        for vrf in self._filtered(self.rendered):
            for family, command in frr_filters.COMMANDS.items():
                saved = self.run(*_inside(vrf), f"{command}-save", "-t", "mangle")
                told = frr_filters.read(saved, family)
                acls |= told[0]
                for port, names in told[1].items():
                    bound.setdefault(port, {}).update(names)
        return acls, bound

    def _filtered(self, what: Wanted) -> set[str]:
        return {what.ports[name][0] for name in what.bound}

    def _configure(self, daemon: str, after: Any, before: Any) -> None:
        away, add = changes(before, after)
        if away:  # what went with something else cannot be taken away once more
            self.configure(daemon, away, strict=False)
        if add:
            self.configure(daemon, add)


def _inside(vrf: str) -> list[str]:
    return [] if vrf == DEFAULT else ["ip", "netns", "exec", vrf]
