"""The adapter of the operating system for tests: its JSON over SSH, in the fabric's words."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from provisioner.model.host_filter import FilterRule, FilterState, SeenFilter, list_differing_rules
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Bond
from provisioner.model.outcome import Reason
from provisioner.model.recovery import LeafState, PeerState, PortState, RouteState, VrfState
from provisioner.model.switch import (
    BondsRead,
    Heard,
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
from provisioner.model.tenant_network import NetworkChange, NetworkState
from provisioner.ports import Clock, HostShell, Malformed, Secret, SwitchAddress, SwitchRefused
from provisioner.ports.switch import ServiceChange, SwitchFacts, Turn
from provisioner.runtime.switch_systems import ShellLine

FACTS = SwitchFacts(name="bench_os", scheme="bench", stored_login=False)
SOURCES = {"applied": "config", "startup": "startup", "operational": "state"}
APART, DENIED = "apart", "denied"  # filters of a port


class BenchSwitch:
    """One switch. Methods raise `PortError`."""

    facts = FACTS

    def __init__(self, name: str, address: SwitchAddress, shell: HostShell, clock: Clock) -> None:
        self._line = ShellLine(name, shell, address.url)
        self._clock = clock

    async def read_images(self) -> Images:
        shown = await self._show("images", dict)
        return Images(
            running=shown["running"], next=shown["next"], versions=tuple(shown["installed"])
        )

    async def read_platform(self) -> Platform:
        return Platform(**await self._show("platform", dict))

    async def install_image(self, url: str, file_name: str, turn: Turn, limit_s: float) -> None:
        raise SwitchRefused(Reason.NOT_OFFERED, "images are not installed by this adapter")

    async def choose_other_image(self, turn: Turn, limit_s: float) -> None:
        images = await self.read_images()
        others = [version for version in images.versions if version != images.running]
        if not others:
            raise SwitchRefused(Reason.SWITCH_REFUSED, "there is no other image")
        async with turn():
            await self._line.write(f"choose {others[0]}")

    async def reboot(self, turn: Turn) -> None:
        async with turn():
            await self._line.write("reboot now")

    async def read_places(
        self, interfaces: Sequence[str], *, saved: bool = True
    ) -> Mapping[str, frozenset[Place]]:
        sources = [name for name in SOURCES if saved or name != "startup"]
        trees = [await self._read_ports(name) for name in sources]
        for name in interfaces:
            if any(name not in tree for tree in trees):
                raise SwitchRefused(Reason.MALFORMED, f"{name}: no readable state")
        return {name: frozenset(_place(tree[name]) for tree in trees) for name in interfaces}

    async def read_tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort]:
        ports: dict[str, TenantPort] = {}
        for source in SOURCES:
            for name, entry in (await self._read_ports(source)).items():
                if entry["vrf"] not in site_vrfs:
                    before = ports.get(name, TenantPort(frozenset(), ()))
                    ports[name] = TenantPort(before.vrfs | {entry["vrf"]}, (entry["address"],))
        return ports

    async def read_bonds(self, bonds: Mapping[str, Bond]) -> BondsRead:
        return BondsRead(obstacles=("this system has no bonds",))

    async def read_descriptions(self) -> Mapping[str, str]:
        ports = await self._read_ports("applied")
        return {name: entry.get("description", "") for name, entry in ports.items()}

    async def read_routes(self) -> Mapping[str, tuple[str, ...]]:
        shown = await self._show("routes", dict)
        return {vrf: tuple(prefixes) for vrf, prefixes in shown.items()}

    async def read_filter(self, source: str) -> SeenFilter | None:
        rules = (await self._show(SOURCES[source], dict)).get("rules")
        if not rules:
            return None
        return SeenFilter({int(number): FilterRule(*rule) for number, rule in rules.items()})

    async def read_filter_state(self) -> FilterState:
        filters = {source: await self.read_filter(source) for source in SOURCES}
        ports = {}
        for source in SOURCES:
            tree = await self._read_ports(source)
            ports[source] = {n: (port["vrf"], APART in port["filters"]) for n, port in tree.items()}
        return FilterState(filters, ports)

    async def apply_change(self, change: PortChange) -> str:
        ports = await self._read_ports("applied")
        entries: dict[str, Any] = {}
        for move in change.moves:
            if move.interface not in ports:
                raise SwitchRefused(Reason.SWITCH_REFUSED, f"there is no port {move.interface}")
            filters = set(ports[move.interface]["filters"])
            if move.denied:
                entries[move.interface] = {"filters": sorted(filters | {DENIED})}
                continue
            entry: dict[str, Any] = {"vrf": move.vrf} if move.vrf else {}
            if move.description:
                entry["description"] = move.description
            if move.vrf:
                filters.discard(DENIED)
            if move.apart is not None:
                filters = filters | {APART} if move.apart else filters - {APART}
            entries[move.interface] = {**entry, "filters": sorted(filters)}
        document: dict[str, Any] = {"ports": entries}
        if change.host_filter is not None:
            held, wanted = await self.read_filter("applied"), change.host_filter
            document["rules"] = {
                str(number): wanted.get(number)
                for number in list_differing_rules(held, wanted, with_doors=change.with_doors)
            }
        await self._line.write(f"change {json.dumps(document)}")
        return "change"

    async def is_saved(self) -> bool:
        return await self._show("config", dict) == await self._show("startup", dict)

    async def save_configuration(self) -> None:
        await self._line.write("save now")

    async def read_services(self, source: str) -> SwitchServices:
        """Return none: it has no services."""
        return SwitchServices()

    async def apply_services(self, change: ServiceChange) -> str:
        """Refuse: it has no services."""
        raise SwitchRefused(Reason.NOT_OFFERED, "it has no services")

    async def set_password(self, username: str, new: Secret) -> str:
        raise SwitchRefused(Reason.NOT_OFFERED, "it is reached with a key")

    async def check_login(self) -> LoginCheck:
        await self._show("platform", dict)
        return LoginCheck("accepted")

    async def is_drained(self) -> bool:
        return bool(await self._show("drain", bool))

    async def set_drain(self, *, on: bool) -> str:
        await self._line.write(f"drain {'on' if on else 'off'}")
        return "drain"

    async def read_wellness(self) -> Wellness:
        issues = await self._show("health", list)
        return Wellness(
            health=", ".join(issues) or "OK",
            established=await self.read_sessions(),
            vnis=frozenset(),
            ports=frozenset(await self.read_carriers()),
        )

    async def read_sessions(self) -> frozenset[str]:
        peers = (await self._show("peers", dict))["default"]
        return frozenset(name for name, state in peers.items() if state == "established")

    async def read_health_report(self, limit_s: float, size_max_bytes: int) -> tuple[str, int, str]:
        issues = await self._show("health", list)
        report = {"status": "Not OK" if issues else "OK", "issues": {name: {} for name in issues}}
        return "show health", 0, json.dumps(report)

    async def read_carriers(self) -> tuple[str, ...]:
        return tuple(sorted(await self._read_ports("operational")))

    async def read_counters(self, interface: str) -> PortCounters:
        shown = await self._show(f"counters {interface}", dict)
        return PortCounters(shown["bytes"], shown["errors"], shown["carrier"])

    async def read_link(self, interface: str) -> LinkReading:
        return LinkReading()  # this bench has neither optics nor queues

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        shown = await self._show("lldp", dict)
        return frozenset((system, port) for system, port in shown.get(interface, ()))

    async def read_surroundings(self) -> Surroundings:
        shown = await self._show("lldp", dict)
        heard = {p: frozenset(Heard(s, port) for s, port in listed) for p, listed in shown.items()}
        return Surroundings("", {p: heard.get(p, frozenset()) for p in await self.read_carriers()})

    async def read_macs(self) -> Mapping[str, frozenset[str]]:
        shown = await self._show("macs", dict)
        return {port: frozenset(macs) for port, macs in shown.items()}

    async def find_wrong_firmware(self, version: str) -> str:
        return ""

    async def read_state(self, interfaces: Sequence[str]) -> LeafState:
        applied, startup = await self._read_ports("applied"), await self._read_ports("startup")
        now, routes = await self._read_ports("operational"), await self.read_routes()
        peers = await self._show("peers", dict)
        return LeafState(
            switch=self._line.name,
            at=self._clock.now(),
            applied=json.dumps(applied, sort_keys=True),
            unsaved=frozenset(n for n in applied if applied[n] != startup.get(n)),
            on_the_way=(),
            issues=tuple(await self._show("health", list)),
            qos="",
            adaptive_routing="",
            acls={},
            ports={name: _port(applied[name], now[name]) for name in interfaces},
            vrf_of={name: entry["vrf"] for name, entry in now.items()},
            vrfs={
                vrf: VrfState(
                    routes=tuple(
                        RouteState(p, "connected", selected=True, offloaded=True) for p in prefixes
                    ),
                    peers={name: PeerState(state) for name, state in peers.get(vrf, {}).items()},
                    imports=frozenset(),
                    vnis={},
                )
                for vrf, prefixes in routes.items()
            },
            applied_targets={},
            applied_peers={vrf: frozenset() for vrf in routes},
            listens=frozenset(),
        )

    async def read_tenant_routing(self, vrf: str, vni: str) -> TenantRouting:
        return TenantRouting(None, (await self._show("peers", dict)).get(vrf, {}))

    async def read_networks(self, vrfs: Collection[str]) -> NetworkState:
        raise SwitchRefused(Reason.NOT_OFFERED, "tenants' networks are the site's own here")

    async def apply_networks(self, change: NetworkChange) -> str:
        raise SwitchRefused(Reason.NOT_OFFERED, "tenants' networks are the site's own here")

    async def _read_ports(self, source: str) -> Mapping[str, dict[str, Any]]:
        ports = (await self._show(SOURCES[source], dict)).get("ports")
        if not isinstance(ports, dict):
            raise Malformed(f"{self._line.url}: no readable ports ({source})")
        return ports

    async def _show(self, what: str, kind: type) -> Any:
        shown = await self._line.read_json(f"show {what}")
        if not isinstance(shown, kind):
            raise Malformed(f"{self._line.url}: show {what}: another shape")
        return shown


def _place(entry: Mapping[str, Any]) -> Place:
    filters = entry["filters"]
    return Place(entry["vrf"], denied=DENIED in filters, apart=APART in filters)


def _port(applied: Mapping[str, Any], now: Mapping[str, Any]) -> PortState:
    return PortState(
        vrf=now["vrf"],
        applied_vrf=applied["vrf"],
        coming=frozenset(),
        up=True,
        mtu=9216,
        addresses=frozenset({now["address"]}),
        acls=frozenset((name, "inbound") for name in now["filters"]),
        neighbours=frozenset(),
        transitions=None,
    )
