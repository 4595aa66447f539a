"""SONiC behind the `Switch` port: commands over SSH, and patches of CONFIG_DB.

A change is a JSON patch that `config apply-patch` checks as a whole and applies or refuses, and two
for a change of VRF; it is in force when the kernel shows it. Sources: `config_db`, `acl_rows`,
`switch_state`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from provisioner.integrations.sonic import acl_rows, config_db, link_reading, services, switch_state
from provisioner.integrations.sonic.config_db import Configuration, Kernel
from provisioner.integrations.sonic.facts import FACTS
from provisioner.model.host_filter import FilterState, SeenFilter
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Bond
from provisioner.model.outcome import Reason
from provisioner.model.recovery import LeafState, PortState, RouteState, VniState, VrfState
from provisioner.model.switch import (
    BondsRead,
    Images,
    LoginCheck,
    Place,
    Platform,
    PortChange,
    PortCounters,
    Surroundings,
    SwitchServices,
    TenantPort,
    TenantRouting,
    Wellness,
)
from provisioner.model.tenant_network import (
    NetworkChange,
    NetworkState,
    VrfNetwork,
)
from provisioner.ports import Clock, HostShell, Malformed, PortError, Secret, SwitchAddress
from provisioner.ports.switch import ServiceChange, SwitchRefused, Turn
from provisioner.runtime.switch_systems import ShellLine, list_port_macs

# ------------------------------------------------------------------------------
# Reads all of one SONiC leaf that the gate of a release judges.
#
# A command whose output cannot be read ends the look: it is whole or it is none.


FAMILIES = ("ipv4", "ipv6")
PHYSICAL = re.compile(r"Ethernet[0-9]{1,4}")  # a port of the front panel


async def read_configuration(line: ShellLine, source: str = "applied") -> Configuration:
    """Return CONFIG_DB ("applied") or the file of the next start ("startup")."""
    command = config_db.STARTUP if source == "startup" else config_db.CONFIGURATION
    read = config_db.read_configuration(await line.read_json(command))
    return line.check(read, command)


async def read_kernel(line: ShellLine, applied: Configuration) -> Kernel:
    """Return the kernel's VRFs and ports."""
    kernel = config_db.read_kernel(await line.read_json(config_db.LINKS), applied)
    return line.check(kernel, config_db.LINKS)


async def read_counts(line: ShellLine, interface: str) -> tuple[int, int, int] | None:
    """Return bytes in, bytes out and damaged frames of one port; None if it has no counters."""
    oid = switch_state.read_port_id(await line.read_text(switch_state.PORT_IDS), interface)
    if oid is None:
        return None
    command = switch_state.build_counters_query(oid)
    return line.check(switch_state.read_counters(await line.read_text(command)), command)


async def read_port_counters(line: ShellLine, interface: str) -> PortCounters:
    """Return the counters of one port. SONiC does not count changes of carrier here."""
    counts = await read_counts(line, interface)
    if counts is None:
        return PortCounters()
    return PortCounters(carried_bytes=counts[0] + counts[1], in_errors=counts[2])


async def read_link(line: ShellLine, interface: str) -> LinkReading:
    """Return the optic and the queues of one port, as far as its databases have them."""
    oid = switch_state.read_port_id(await line.read_text(switch_state.PORT_IDS), interface)
    if oid is None:
        return LinkReading()
    port = await line.read_text(switch_state.build_counters_query(oid))
    named = await line.read_text(link_reading.QUEUE_IDS)
    queues = [
        await line.read_text(switch_state.build_counters_query(queue))
        for queue in link_reading.list_queue_ids(named, interface)
    ]
    tables = [await line.read_text(q) for q in link_reading.build_optic_queries(interface)]
    return LinkReading(
        optic=link_reading.read_optic(*tables) if tables else None,
        queues=link_reading.read_queues(port, queues),
    )


async def read_neighbours(line: ShellLine, interface: str) -> frozenset[tuple[str, str]]:
    """Return the devices that one port hears by LLDP."""
    answer = await line.read_json(switch_state.LLDP)
    return line.check(switch_state.read_lldp(answer, interface), switch_state.LLDP)


async def read_macs(line: ShellLine) -> dict[str, frozenset[str]]:
    """Return front-panel port -> MACs, of its VLANs and of its routed ports."""
    listed = switch_state.read_neighbours(await line.read_json(switch_state.NEIGHBOURS))
    bridged = switch_state.read_macs(await line.read_text(switch_state.MACS))
    return list_port_macs(
        PHYSICAL,
        line.check(listed, switch_state.NEIGHBOURS),
        line.check(bridged, switch_state.MACS),
    )


async def read_state(line: ShellLine, clock: Clock, interfaces: Sequence[str]) -> LeafState:
    """Return the leaf with these ports."""
    applied = await read_configuration(line)
    startup = await read_configuration(line, "startup")
    kernel = await read_kernel(line, applied)
    health = switch_state.read_health(await line.read_text(switch_state.HEALTH))
    listed = switch_state.read_neighbours(await line.read_json(switch_state.NEIGHBOURS))
    lldp = await line.read_json(switch_state.LLDP)
    ports = {}
    for name in interfaces:
        heard = line.check(switch_state.read_lldp(lldp, name), switch_state.LLDP)
        ports[name] = await _read_port(line, name, applied, kernel, heard)
    return LeafState(
        switch=line.name,
        at=clock.now(),
        applied=_digest([sorted(applied.vrfs), repr(sorted(applied.ports.items()))]),
        unsaved=config_db.list_unsaved_ports(applied, startup),
        on_the_way=(),
        issues=line.check(health, switch_state.HEALTH),
        qos="",
        adaptive_routing="",
        acls={
            name: _digest([row, _list_rules(applied.tables, name)])
            for name, row in applied.tables.get("ACL_TABLE", {}).items()
        },
        ports=ports,
        vrf_of={name: port.vrf for name, port in kernel.ports.items()},
        vrfs={vrf: await _read_vrf(line, vrf) for vrf in sorted(kernel.vrfs)},
        applied_targets={},
        applied_peers={vrf: frozenset() for vrf in applied.vrfs},
        listens=frozenset(),
        neighbours=line.check(listed, switch_state.NEIGHBOURS),
    )


async def _read_port(
    line: ShellLine,
    name: str,
    applied: Configuration,
    kernel: Kernel,
    heard: frozenset[tuple[str, str]],
) -> PortState:
    if name not in kernel.ports or name not in applied.ports:
        raise Malformed(f"{line.url}: it has no interface {name}")
    port = kernel.ports[name]
    counts = await read_counts(line, name)
    return PortState(
        vrf=port.vrf,
        applied_vrf=applied.ports[name].vrf,
        coming=frozenset(),
        up=port.up,
        mtu=port.mtu,
        addresses=frozenset(port.addresses),
        acls=frozenset(_list_acls(applied.tables, name)),
        neighbours=heard,
        transitions=None,
        in_bytes=None if counts is None else counts[0],
        out_bytes=None if counts is None else counts[1],
        in_errors=None if counts is None else counts[2],
    )


async def _read_vrf(line: ShellLine, vrf: str) -> VrfState:
    routes: list[RouteState] = []
    imports: frozenset[str] = frozenset()
    for family in FAMILIES:
        command = switch_state.build_routes_query(vrf, family)
        read = switch_state.read_routes(await line.read_json(command))
        routes += line.check(read, command)
        command = switch_state.build_leaks_query(vrf, family)
        imports |= line.check(switch_state.read_leaks(await line.read_json(command)), command)
    command = switch_state.build_peers_query(vrf)
    peers = line.check(switch_state.read_peers(await line.read_json(command)), command)
    owners = switch_state.read_vnis(await line.read_json(switch_state.VNIS))
    vnis: dict[str, VniState] = {}
    for vni, owner in line.check(owners, switch_state.VNIS).items():
        if owner == vrf and vni.isascii() and vni.isdigit():
            command = switch_state.build_targets_query(vni)
            read_vni = switch_state.read_targets(await line.read_json(command))
            vnis[vni] = line.check(read_vni, command)
    return VrfState(routes=tuple(routes), peers=peers, imports=imports, vnis=vnis)


def _list_acls(tables: Mapping[str, Any], port: str) -> list[tuple[str, str]]:
    """Return (name, direction) of each ACL that is bound to a port."""
    bound = []
    for name, row in tables.get("ACL_TABLE", {}).items():
        if port in acl_rows.list_bound_ports(row):
            egress = str(row.get("stage", acl_rows.STAGE)).lower() == "egress"
            bound.append((name, "outbound" if egress else "inbound"))
    return bound


def _list_rules(tables: Mapping[str, Any], table: str) -> dict[str, Any]:
    rules = tables.get("ACL_RULE", {})
    return {key: row for key, row in rules.items() if key.startswith(f"{table}|")}


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# source: an interface's name in Linux has 15 characters, and "Vrf" stands before the fabric's name

REMOVAL_LIMIT_S = 30.0  # intfmgrd removes an interface within a second; a busy one takes longer
REMOVAL_POLL_S = 0.2


class SonicSwitch:
    """One switch at ssh://ADDRESS. Methods raise `PortError`."""

    facts = FACTS

    def __init__(self, name: str, address: SwitchAddress, shell: HostShell, clock: Clock) -> None:
        self._line = ShellLine(name, shell, address.url)
        self._clock = clock

    # --- images

    async def read_images(self) -> Images:
        """Return the images of `sonic-installer list`."""
        images = config_db.read_images(await self._line.read_text(config_db.IMAGES))
        return self._line.check(images, config_db.IMAGES)

    async def read_platform(self) -> Platform:
        """Return SKU and serial."""
        config = await self._line.read_json(config_db.CONFIGURATION)
        serial = await self._line.read_text(switch_state.SERIAL)
        read = self._line.check(config_db.read_platform(config, serial), switch_state.SERIAL)
        return read.model_copy(update={"damaged": tuple(self._line.damaged)})

    async def install_image(self, url: str, file_name: str, turn: Turn, limit_s: float) -> None:
        """Refuse: the role `switch_sonic` installs images, by the method `sonic_installer`."""
        detail = f"{file_name}: images of SONiC are installed by the method sonic_installer"
        raise SwitchRefused(Reason.NOT_OFFERED, detail)

    async def choose_other_image(self, turn: Turn, limit_s: float) -> None:
        """Make the image beside the running one the default."""
        other = config_db.find_other_image(await self.read_images())
        if not other:
            raise SwitchRefused(Reason.SWITCH_REFUSED, "there is no image beside the running one")
        async with turn():
            await self._line.write(switch_state.set_default(other))

    async def reboot(self, turn: Turn) -> None:
        """Start the reboot, so that the command itself still ends."""
        async with turn():
            await self._line.write(switch_state.REBOOT)

    # --- ports

    async def read_places(
        self, interfaces: Sequence[str], *, saved: bool = True
    ) -> Mapping[str, frozenset[Place]]:
        """Return the places of each port by CONFIG_DB, the startup file and the kernel."""
        applied = await read_configuration(self._line)
        sources = [applied]
        if saved:
            sources.append(await read_configuration(self._line, "startup"))
        kernel = await read_kernel(self._line, applied)
        active = await self._read_active_ports(applied)
        places: dict[str, frozenset[Place]] = {}
        for name in interfaces:
            if name not in kernel.ports or any(name not in s.ports for s in sources):
                raise SwitchRefused(Reason.MALFORMED, f"{name}: no readable state")
            by_config = {
                Place(s.ports[name].vrf, denied=False, apart=name in acl_rows.list_ports(s.tables))
                for s in sources
            }
            in_force = Place(kernel.ports[name].vrf, denied=False, apart=name in active)
            places[name] = frozenset({*by_config, in_force})
        return places

    async def read_tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort]:
        """Return every port that is, or will be, in a VRF not in `site_vrfs`."""
        applied = await read_configuration(self._line)
        startup = await read_configuration(self._line, "startup")
        kernel = await read_kernel(self._line, applied)
        ports: dict[str, TenantPort] = {}
        for source in (applied.ports, startup.ports, kernel.ports):
            for name, port in source.items():
                if port.vrf not in site_vrfs:
                    before = ports.get(name, TenantPort(frozenset(), ()))
                    addresses = port.addresses or before.addresses
                    ports[name] = TenantPort(before.vrfs | {port.vrf}, addresses)
        return ports

    async def read_descriptions(self) -> Mapping[str, str]:
        """Return the descriptions of the table PORT."""
        applied = await read_configuration(self._line)
        return {name: port.description for name, port in applied.ports.items()}

    async def read_routes(self) -> Mapping[str, tuple[str, ...]]:
        """Return FRR's IPv4 routes of every VRF of the kernel."""
        applied = await read_configuration(self._line)
        kernel = await read_kernel(self._line, applied)
        tables = {}
        for vrf in sorted(kernel.vrfs):
            command = switch_state.build_routes_query(vrf, "ipv4")
            answer = await self._line.read_json(command)
            if not isinstance(answer, dict) or len(answer) > switch_state.ENTRIES_MAX:
                raise Malformed(f"{self._line.url}: {command}: an answer that cannot be read")
            try:
                tables[vrf] = tuple(str(ipaddress.ip_network(p, strict=False)) for p in answer)
            except ValueError:
                detail = f"VRF {vrf[:20]}: no readable routes"
                raise SwitchRefused(Reason.MALFORMED, detail) from None
        return tables

    async def read_filter(self, source: str) -> SeenFilter | None:
        """Return the filter between hosts of CONFIG_DB, the startup file, or the ASIC."""
        config = await read_configuration(
            self._line, "startup" if source == "startup" else "applied"
        )
        configured = acl_rows.read_filter(config.tables)
        if source != "operational":
            return configured
        return await self._read_active(configured)

    async def read_filter_state(self) -> FilterState:
        """Return that filter and its ports in every source."""
        applied = await read_configuration(self._line)
        startup = await read_configuration(self._line, "startup")
        kernel = await read_kernel(self._line, applied)
        configured = acl_rows.read_filter(applied.tables)
        active = await self._read_active(configured)
        bound = acl_rows.list_ports(applied.tables)
        in_force = bound if active is not None else frozenset()
        later = acl_rows.list_ports(startup.tables)
        return FilterState(
            filters={
                "applied": configured,
                "startup": acl_rows.read_filter(startup.tables),
                "operational": active,
            },
            ports={
                "applied": {n: (p.vrf, n in bound) for n, p in applied.ports.items()},
                "startup": {n: (p.vrf, n in later) for n, p in startup.ports.items()},
                "operational": {n: (p.vrf, n in in_force) for n, p in kernel.ports.items()},
            },
        )

    async def read_bonds(self, bonds: Mapping[str, Bond]) -> BondsRead:
        """Refuse them: no leaf that was at hand has SONiC's EVPN multihoming (sonic-net/SONiC,
        doc/vxlan/EVPN/EVPN_VxLAN_Multihoming.md, revision 0.2).
        """
        names = ", ".join(sorted(bond.name for bond in bonds.values()))
        return BondsRead(obstacles=(f"no bonds are made on SONiC: take {names} from the list",))

    async def apply_change(self, change: PortChange) -> str:
        """Apply moves as patches of CONFIG_DB: a port leaves its VRF before it enters another.

        In between it has no address and no VRF, and routes nothing. Filters are bound before that.
        """
        if any(move.guard for move in change.moves):
            detail = "no filters of security groups are written on SONiC"
            raise SwitchRefused(Reason.NOT_OFFERED, detail)
        applied = await read_configuration(self._line)
        steps = config_db.plan_patch(applied, change)
        if not steps:
            return ""  # CONFIG_DB asks for it already, and the kernel is to follow
        leaving = config_db.list_vrf_changes(applied, change)
        if leaving:
            filters = acl_rows.plan_steps(applied.tables, change)
            first = [*filters, *config_db.plan_removal(applied, leaving)]
            await self._line.write(config_db.apply_patch(first))
            await self._await_removal(leaving)
            bare = config_db.without_rows(applied, leaving)
            steps = config_db.plan_rows(bare, change, applied)
        await self._line.write(config_db.apply_patch(steps))
        return config_db.name_patch(steps)

    async def _await_removal(self, ports: Collection[str]) -> None:
        """Wait until intfmgrd has given up the ports; it ignores a row that comes before that."""
        command = config_db.find_held_ports(ports)
        until = self._clock.now() + REMOVAL_LIMIT_S
        while True:
            *held, mark = (await self._line.read_text(command)).split() or [""]
            if mark == "read" and not held:
                return
            if self._clock.now() >= until:
                detail = f"{', '.join(held)[:100] or command[:60]}: not removed from STATE_DB"
                raise SwitchRefused(Reason.SWITCH_REFUSED, detail)
            await self._clock.sleep(REMOVAL_POLL_S)

    async def is_saved(self) -> bool:
        """Return whether the startup file agrees with CONFIG_DB about ports, VRFs and filters."""
        applied = await read_configuration(self._line)
        startup = await read_configuration(self._line, "startup")
        return not config_db.list_unsaved_ports(applied, startup)

    async def set_password(self, username: str, new: Secret) -> str:
        """Refuse: the switch is reached with the site's key, and no password is stored."""
        raise SwitchRefused(Reason.NOT_OFFERED, "it is reached with the site's SSH key")

    async def save_configuration(self) -> None:
        """Write CONFIG_DB into the startup file."""
        await self._line.write(config_db.SAVE)

    async def _read_active(self, configured: SeenFilter | None) -> SeenFilter | None:
        if configured is None:
            return None
        try:
            text = await self._line.read_text(acl_rows.STATUS)
            return acl_rows.read_active(text, configured)
        except ValueError as error:
            raise Malformed(f"{self._line.url}: {error}") from None

    async def _read_active_ports(self, applied: config_db.Configuration) -> frozenset[str]:
        active = await self._read_active(acl_rows.read_filter(applied.tables))
        return frozenset() if active is None else acl_rows.list_ports(applied.tables)

    # --- watch and drain

    async def check_login(self) -> LoginCheck:
        """Run a command that reads; SSH has no factory password to change here."""
        try:
            await self._line.read_text(config_db.IMAGES)
        except PortError as error:
            if error.reason is not Reason.LOGIN_REFUSED:
                raise
            return LoginCheck("refused", str(error))
        return LoginCheck("accepted")

    async def is_drained(self) -> bool:
        """Return whether traffic is shifted away."""
        text = await self._line.read_text(switch_state.MODE)
        return self._line.check(switch_state.read_drained(text), switch_state.MODE)

    async def set_drain(self, *, on: bool) -> str:
        """Shift traffic away, or back."""
        command = switch_state.build_isolation_command(on=on)
        await self._line.write(command)
        return command

    async def read_wellness(self) -> Wellness:
        """Return health, BGP sessions, VNIs and ports with carrier."""
        issues = await self._read_health()
        vnis = switch_state.read_vnis(await self._line.read_json(switch_state.VNIS))
        return Wellness(
            health="OK" if not issues else f"Not OK: {', '.join(sorted(issues))}"[:200],
            established=await self.read_sessions(),
            vnis=frozenset(self._line.check(vnis, switch_state.VNIS)),
            ports=frozenset(await self.read_carriers()),
        )

    async def read_sessions(self) -> frozenset[str]:
        """Return the established BGP neighbours of the default VRF."""
        command = switch_state.build_peers_query("default")
        peers = switch_state.read_peers(await self._line.read_json(command))
        listed = self._line.check(peers, command)
        return frozenset(name for name, peer in listed.items() if peer.state == "established")

    async def read_health_report(self, limit_s: float, size_max_bytes: int) -> tuple[str, int, str]:
        """Return the health summary as status and issues."""
        issues = await self._read_health()
        status = "Not OK" if issues else "OK"
        report = {"status": status, "issues": {line: {"issue": "not OK"} for line in issues}}
        return switch_state.HEALTH, 0, json.dumps(report)

    async def read_carriers(self) -> tuple[str, ...]:
        """Return the ports of the table PORT, which are those of the front panel, with carrier."""
        applied = await read_configuration(self._line)
        kernel = await read_kernel(self._line, applied)
        return tuple(sorted(name for name, port in kernel.ports.items() if port.up))

    async def read_counters(self, interface: str) -> PortCounters:
        """Return the counters of one port."""
        return await read_port_counters(self._line, interface)

    async def read_link(self, interface: str) -> LinkReading:
        """Return the optic and the queues of one port."""
        return await read_link(self._line, interface)

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return the devices that one port hears by LLDP."""
        return await read_neighbours(self._line, interface)

    async def read_surroundings(self) -> Surroundings:
        """Return its host name, and who is heard at each port with carrier."""
        heard = switch_state.read_heard(await self._line.read_json(switch_state.LLDP))
        up = await self.read_carriers()
        ports = self._line.check(heard, switch_state.LLDP)
        name = config_db.read_hostname(await read_configuration(self._line))
        return Surroundings(name, {p: ports.get(p, frozenset()) for p in up})

    async def read_macs(self) -> Mapping[str, frozenset[str]]:
        """Return the MACs that were learned at each front-panel port."""
        return await read_macs(self._line)

    async def find_wrong_firmware(self, version: str) -> str:
        """Return "": no pairs of SONiC images and ASIC firmware are published."""
        return ""

    async def read_state(self, interfaces: Sequence[str]) -> LeafState:
        """Return all that the release gate judges."""
        return await read_state(self._line, self._clock, interfaces)

    async def read_tenant_routing(self, vrf: str, vni: str) -> TenantRouting:
        """Return the route targets of a VNI and the sessions of its VRF, by FRR."""
        command = switch_state.build_peers_query(vrf)
        peers = switch_state.read_peers(await self._line.read_json(command))
        targets = None
        if vni.isascii() and vni.isdigit():
            read = switch_state.read_targets(
                await self._line.read_json(switch_state.build_targets_query(vni))
            )
            targets = None if read is None else (read.imports, read.exports)
        listed = None if peers is None else {name: peer.state for name, peer in peers.items()}
        return TenantRouting(targets, listed)

    async def _read_health(self) -> tuple[str, ...]:
        issues = switch_state.read_health(await self._line.read_text(switch_state.HEALTH))
        return self._line.check(issues, switch_state.HEALTH)

    # --- tenants' networks

    async def read_networks(self, vrfs: Collection[str]) -> NetworkState:
        """Return VRFs and ports. No tenant's L3VNI, targets and policy are published for SONiC."""
        applied = await read_configuration(self._line)
        kernel = await read_kernel(self._line, applied)
        return NetworkState(
            switch=self._line.name,
            vrfs={vrf: VrfNetwork() for vrf in applied.vrfs},
            policies={},
            ports_applied={name: port.vrf for name, port in applied.ports.items()},
            asn=None,
            has_evpn=False,
            has_vxlan=False,
            vrfs_in_force=kernel.vrfs,
            ports={name: port.vrf for name, port in kernel.ports.items()},
            saved=await self.is_saved(),
        )

    async def apply_networks(self, change: NetworkChange) -> str:
        """Refuse, because their form is not published."""
        detail = "tenants' L3VNIs, targets and policy are not published for SONiC"
        raise SwitchRefused(Reason.NOT_OFFERED, detail)

    # --- services

    async def read_services(self, source: str) -> SwitchServices:
        """Return time servers, syslog servers and logins of CONFIG_DB or the startup file."""
        config = await read_configuration(self._line, source)
        return services.read_services(config.tables)

    async def apply_services(self, change: ServiceChange) -> str:
        """Apply a change of them as one patch."""
        applied = await read_configuration(self._line)
        steps = services.plan_services(applied.tables, change)
        if not steps:
            return ""
        await self._line.write(config_db.apply_patch(steps))
        return config_db.name_patch(steps)
