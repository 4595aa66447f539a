"""Cumulus Linux behind the `Switch` port, over its REST API (NVUE)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

from provisioner.integrations.cumulus import (
    bonds,
    link_reading,
    nvue_calls,
    port_reading,
    switch_state,
)
from provisioner.integrations.cumulus import (
    services as bgp_drain,
)
from provisioner.integrations.cumulus import switch_state as words
from provisioner.integrations.cumulus.facts import FACTS
from provisioner.integrations.cumulus.nvue_calls import PREFIX, Ask
from provisioner.integrations.cumulus.revisions import (
    CONFIGURATION_S,
    NvueLine,
    Revisions,
    decode_document,
)
from provisioner.integrations.cumulus.services import Services
from provisioner.integrations.cumulus.tenant_networks import (
    TenantNetworks,
    merge_tree,
    read_states,
    read_targets,
)
from provisioner.model.host_filter import FilterState, SeenFilter
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Bond
from provisioner.model.outcome import Reason
from provisioner.model.recovery import BondState, LeafState, PortState, VniState, VrfState
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
from provisioner.model.versions import parse_version
from provisioner.ports import Clock, LoginRefused, PortError, Secret, SwitchAddress, SwitchTransport
from provisioner.ports.switch import ServiceChange, SwitchRefused, Turn
from provisioner.ports.wire import UNREADABLE
from provisioner.runtime.switch_systems import list_port_macs
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Reads all of one leaf that the gate of a release judges.
#
# Rule: a look is whole or it is none: an answer that cannot be read refuses all of it. Reading may
# be repeated, so that one lost answer costs one request.


# a port's bond, and whom its members hear
Bonded = tuple[BondState, frozenset[tuple[str, str]]]
AT_ONCE = 12  # requests of one look; the API of a switch serves a few at a time
TRIES_MAX = 4  # of one request: an answer in fifty may be lost, and a look is some fifty of them


class StateLook:
    """One look at one leaf."""

    def __init__(self, line: NvueLine, clock: Clock, limits: Settings) -> None:
        self._line = line
        self._clock = clock
        self._limits = limits
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, interfaces: Sequence[str]) -> LeafState:
        """Return the leaf with these ports."""
        try:
            return await self._read(interfaces)
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return (system, port) of each device that one port hears by LLDP."""
        try:
            answer = await self._ask(self._line.find, words.lldp_path(interface))
            return words.read_lldp(answer or {})
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def read_surroundings(self, ports: Sequence[str]) -> dict[str, frozenset[Heard]]:
        """Return who is heard by LLDP at each of these ports."""
        try:
            answers = await self._all([words.lldp_path(port) for port in ports], self._line.find)
            return {p: words.read_heard(a or {}) for p, a in zip(ports, answers, strict=True)}
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def read_macs(self) -> dict[str, frozenset[str]]:
        """Return front-panel port -> MACs, of its bridges and of its routed ports."""
        try:
            entries, bridges = await self._all(
                (words.NEIGHBOURS_PATH, words.BRIDGES_PATH), self._line.find
            )
            macs = await self._read_bridges(bridges)
            return list_port_macs(port_reading.PHYSICAL, words.read_neighbours(entries or {}), macs)
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def _read_bridges(self, bridges: Any) -> dict[str, str]:
        bridged = [words.macs_path(name) for name in words.find_object(bridges or {})]
        macs: dict[str, str] = {}
        for table in await self._all(bridged, self._line.find):
            macs |= words.read_macs(table or {})
        return macs

    async def _read(self, interfaces: Sequence[str]) -> LeafState:
        line = self._line
        # before the trees: a revision that ends in between shows in the tree that is read after it
        listed = nvue_calls.read_revisions(await self._ask(line.get, nvue_calls.REVISIONS_PATH))
        if listed is None:
            raise words.Unreadable("no readable list of revisions")
        on_the_way = sorted(name for name, state in listed.items() if state.sent)
        trees, told, ports, coming = await asyncio.gather(
            self._all(
                [nvue_calls.tree_path("applied"), nvue_calls.tree_path("startup"), *_TREES],
                line.get,
            ),
            self._all(_OPTIONAL, line.find),
            self._all([p(i) for i in interfaces for p in _OF_PORT], line.find),
            self._all([nvue_calls.interfaces_path(name) for name in on_the_way], line.get),
        )
        applied, startup, entries, names = trees
        neighbours, bridges, qos, adaptive, acls, health = told
        if neighbours is None or health is None:
            raise words.Unreadable("it reports neither neighbours nor health")
        vrfs = await self._vrfs(nvue_calls.read_names(names))
        macs = await self._read_bridges(bridges)
        return LeafState(
            switch=line.name,
            at=self._clock.now(),
            applied=words.digest(applied),
            unsaved=words.find_unsaved(applied, startup),
            on_the_way=tuple(on_the_way),
            issues=words.read_issues(health),
            qos=words.digest(decode_document(qos, ("qos", "roce"))),
            adaptive_routing=words.digest(
                decode_document(adaptive, ("router", "adaptive-routing"))
            ),
            acls={
                name: words.digest(entry) for name, entry in words.find_object(acls or {}).items()
            },
            ports=_ports(
                interfaces,
                entries,
                [words.find_object(applied, "interface"), *coming],
                ports,
                await self._read_bonds(interfaces, applied, entries),
            ),
            vrf_of={
                name: words.vrf_of(entry) for name, entry in words.find_object(entries).items()
            },
            vrfs=vrfs,
            applied_targets=words.configured_targets(applied),
            applied_peers=words.configured_peers(applied),
            listens=words.find_listening_vrfs(applied),
            neighbours=words.read_neighbours(neighbours),
            fdb=macs,
        )

    async def _read_bonds(
        self, interfaces: Sequence[str], applied: Any, entries: Any
    ) -> dict[str, Bonded]:
        """Return the bonds of these ports, with whom their members hear; most leaves have none."""
        named = bonds.find_bonds(interfaces, applied)
        if not named:
            return {}
        segments, mlag = await self._all((bonds.SEGMENTS_PATH, bonds.MLAG_PATH), self._line.find)
        found = {}
        for name, bond in named.items():
            state = bonds.read_bond(name, bond, applied, entries, segments or {}, mlag or {})
            paths = [words.lldp_path(member) for member in sorted(state.members)]
            answers = await self._all(paths, self._line.find)
            heard = (words.read_lldp(answer or {}) for answer in answers)
            found[name] = (state, frozenset[tuple[str, str]]().union(*heard))
        return found

    async def _vrfs(self, names: Sequence[str] | None) -> dict[str, VrfState]:
        if not names:
            raise words.Unreadable("no readable list of VRFs")
        line = self._line
        tables, told = await asyncio.gather(
            self._all([words.rib_path(n, f) for n in names for f in words.FAMILIES], line.find),
            self._all([p(n) for n in names for p in _OF_VRF], line.find),
        )
        numbers = [sorted(words.find_object(told[i] or {}, "vni")) for i in range(2, len(told), 3)]
        asked = [vni for mine in numbers for vni in mine]
        targets = await self._all([words.targets_path(vni) for vni in asked], line.get)
        read = {vni: words.read_targets(t) for vni, t in zip(asked, targets, strict=True)}
        found: dict[str, VrfState] = {}
        for at, name in enumerate(names):
            peers, families, _ = told[3 * at : 3 * at + 3]
            vnis: Mapping[str, VniState] = {vni: read[vni] for vni in numbers[at]}
            found[name] = VrfState(
                routes=(
                    *words.read_routes(tables[2 * at]),
                    *words.read_routes(tables[2 * at + 1] or {}),  # IPv6 may be off
                ),
                peers=words.read_peers(peers or {}),
                imports=words.read_imports(families or {}),
                vnis=vnis,
            )
        return found

    async def _all(
        self, paths: Sequence[str], how: Callable[[str], Awaitable[Any]]
    ) -> Sequence[Any]:
        return await asyncio.gather(*(self._ask(how, path) for path in paths))

    async def _ask(self, how: Callable[[str], Awaitable[Any]], path: str) -> Any:
        async with self._slots:
            for attempt in range(TRIES_MAX):
                try:
                    return await how(path)
                except SwitchRefused:
                    raise
                except PortError:
                    if attempt == TRIES_MAX - 1:
                        raise
                    await self._clock.sleep(self._limits.switch_poll_s * 2**attempt / 2)
        raise AssertionError("unreachable")


_TREES = (nvue_calls.INTERFACES_PATH, nvue_calls.VRFS_PATH)
_OPTIONAL = (
    words.NEIGHBOURS_PATH,
    words.BRIDGES_PATH,
    words.QOS_PATH,
    words.ADAPTIVE_PATH,
    words.ACLS_PATH,
    words.HEALTH_PATH,
)
_OF_PORT = (words.lldp_path, words.counters_path, words.port_qos_path)
_OF_VRF = (words.peers_path, words.families_path, words.vrf_vnis_path)


def _ports(
    interfaces: Sequence[str],
    entries: Any,
    trees: Sequence[Any],
    told: Sequence[Any],
    bonded: Mapping[str, Bonded],
) -> dict[str, PortState]:
    now = words.find_object(entries)
    found = {}
    for number, name in enumerate(interfaces):
        if name not in now:
            raise words.Unreadable(f"it has no interface {name}")
        lldp, counters, qos = told[3 * number : 3 * number + 3]
        meant = [words.find_object(tree, name) for tree in trees]
        bond, heard = bonded.get(name, (None, words.read_lldp(lldp or {})))
        found[name] = words.read_port(now[name], meant, heard, counters or {}, qos, bond)
    return found


T = TypeVar("T")

GRAMMAR = "cumulus"
PLATFORM_PATH = f"{PREFIX}/platform?rev=operational"
# Without a change of the factory's password, NVUE answers 403 to this.
LOGIN_PATH = f"{PREFIX}/system?rev=applied"
HEALTH_PATH = f"{PREFIX}/system/health?rev=operational"
GONE = 404  # a job is kept in memory: a restarted API has forgotten it


class CumulusSwitch:
    """One switch. Methods raise `PortError`."""

    facts = FACTS

    def __init__(
        self,
        name: str,
        address: SwitchAddress,
        transport: SwitchTransport,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._line = NvueLine(name, address, transport)
        self._signal_pages: tuple[str, ...] = link_reading.SIGNAL_PAGES
        self._clock = clock
        self._settings = settings
        self._revisions = Revisions(self._line, clock, settings)
        self._look = StateLook(self._line, clock, settings)
        self._networks = TenantNetworks(self._line, self._revisions)
        self._services = Services(self._line, self._revisions)

    # --- images

    async def read_images(self) -> Images:
        """Return the images of both partitions."""
        images = nvue_calls.read_images(await self._line.get(nvue_calls.IMAGES_PATH))
        if isinstance(images, str):
            raise SwitchRefused(Reason.MALFORMED, images)
        return images

    async def read_platform(self) -> Platform:
        """Return model and serial."""
        answer = await self._line.get(PLATFORM_PATH)
        listed = answer if isinstance(answer, dict) else {}
        model = listed.get("product-name")
        serial = listed.get("serial-number")
        return Platform(
            model=model if isinstance(model, str) and model != UNREADABLE else None,
            serial=serial if isinstance(serial, str) and serial != UNREADABLE else None,
            damaged=tuple(self._line.damaged),
        )

    async def install_image(self, url: str, file_name: str, turn: Turn, limit_s: float) -> None:
        """Fetch an image, then install it into the partition that does not run."""
        await self._act(nvue_calls.fetch_image(url), turn, limit_s)
        await self._act(nvue_calls.install_image(file_name), turn, limit_s)

    async def choose_other_image(self, turn: Turn, limit_s: float) -> None:
        """Make the other partition the next one."""
        await self._act(nvue_calls.boot_next(), turn, limit_s)

    async def reboot(self, turn: Turn) -> None:
        """Start the reboot."""
        async with turn():
            await self._line.ask(nvue_calls.reboot())

    async def _act(self, ask: Ask, turn: Turn, limit_s: float) -> None:
        """Start an action in the switch's turn, and await its job outside of it.

        No revision is half done when the action starts, and ports can be moved while it takes
        minutes. A job that the switch has forgotten has ended: the caller reads the state.
        """
        async with turn():
            answer = await self._line.ask(ask)
        job = nvue_calls.read_job_id(answer)
        if job is None:
            raise SwitchRefused(Reason.MALFORMED, f"{ask.path}: an answer without a job")
        look = Ask("GET", f"{nvue_calls.JOBS_PATH}/{quote(job, safe='')}")
        until = self._clock.now() + limit_s
        while self._clock.now() < until:
            try:
                reply = await self._line.send(look)
                if reply.status == GONE:
                    return
                state = (
                    nvue_calls.read_job(self._line.read(look.path, reply))
                    if reply.status < 300
                    else None
                )
            except PortError:
                state = None  # silence while waiting is no failure
            if state is not None and state.done:
                if not state.ok:
                    raise SwitchRefused(Reason.UPDATE_FAILED, state.detail)
                return
            await self._clock.sleep(self._settings.poll_s)
        raise SwitchRefused(Reason.UPDATE_STALLED, f"{ask.path}: no end within {limit_s:.0f} s")

    # --- ports

    async def read_places(
        self, interfaces: Sequence[str], *, saved: bool = True
    ) -> Mapping[str, frozenset[Place]]:
        """Return the places of each port by every tree and every revision under way."""
        return await port_reading.read_places(self._line, interfaces, saved=saved)

    async def read_tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort]:
        """Return every port that is, or will be, in a VRF not in `site_vrfs`."""
        return await port_reading.read_tenant_ports(self._line, site_vrfs)

    async def read_descriptions(self) -> Mapping[str, str]:
        """Return the applied descriptions."""
        entries = await port_reading.read_interfaces(self._line, "applied")
        return {name: nvue_calls.read_description(entry) for name, entry in entries.items()}

    async def read_routes(self) -> Mapping[str, tuple[str, ...]]:
        """Return the routes of every VRF."""
        names = nvue_calls.read_names(await self._line.get(nvue_calls.VRFS_PATH))
        if not names:
            raise SwitchRefused(Reason.MALFORMED, "no readable list of VRFs")
        answers = await asyncio.gather(
            *(self._line.get(nvue_calls.routes_path(name)) for name in names)
        )
        tables = {}
        for name, answer in zip(names, answers, strict=True):
            routes = nvue_calls.read_routes(answer)
            if routes is None:
                raise SwitchRefused(Reason.MALFORMED, f"VRF {name[:20]}: no readable routes")
            tables[name] = routes
        return tables

    async def read_filter(self, source: str) -> SeenFilter | None:
        """Return the filter between hosts of one tree."""
        return await port_reading.read_filter(self._line, source)

    async def read_filter_state(self) -> FilterState:
        """Return that filter and its ports in all trees."""
        return await port_reading.read_filter_state(self._line)

    async def read_bonds(self, bonds_made: Mapping[str, Bond]) -> BondsRead:
        """Compare bonds with the applied configuration."""
        applied = await self._line.get(nvue_calls.tree_path("applied"), CONFIGURATION_S)
        version = (await self.read_images()).running
        try:
            return bonds.compare_bonds(bonds_made, applied, version)
        except words.Unreadable as problem:
            raise SwitchRefused(Reason.MALFORMED, str(problem)) from None

    async def apply_change(self, change: PortChange) -> str:
        """Apply moves as one revision, with the bonds that are made for them."""
        made = {m.interface: m.bond for m in change.moves if m.bond and not m.stays}
        tree = bonds.encode_bonds(made, (await self.read_images()).running) if made else {}

        def fill(revision: str) -> Iterable[Ask]:
            ask = nvue_calls.move_ports(revision, change)
            merge_tree(ask.body, tree)
            return [ask]

        return await self._revisions.apply(fill)

    async def is_saved(self) -> bool:
        """Return whether the startup configuration equals the applied one."""
        return await self._revisions.is_saved()

    async def save_configuration(self) -> None:
        """Save the applied configuration."""
        await self._revisions.save()

    async def set_password(self, username: str, new: Secret) -> str:
        """Apply the password as one revision; `LoginRefused` once the old one is void."""
        password = new.reveal()
        return await self._revisions.apply(
            lambda name: [nvue_calls.set_password(name, username, password)]
        )

    # --- watch and drain

    async def check_login(self) -> LoginCheck:
        """Return the API's answer to the credential."""
        try:
            reply = await self._line.send(Ask("GET", LOGIN_PATH))
        except LoginRefused as refused:
            return LoginCheck("refused", str(refused))
        date = reply.headers.get("date", "")
        status = {200: "accepted", 401: "refused", 403: "must_change"}.get(reply.status, "other")
        return LoginCheck(status, f"{LOGIN_PATH}: status {reply.status}", date)

    async def is_drained(self) -> bool:
        """Return whether BGP's graceful shutdown is applied."""
        drained = bgp_drain.read_drained(await self._line.get(bgp_drain.BGP_PATH))
        return self._checked(drained, bgp_drain.BGP_PATH)

    async def set_drain(self, *, on: bool) -> str:
        """Send the revision of a drain, in the form of the running release."""
        release = parse_version(GRAMMAR, (await self.read_images()).running) or ()

        def fill(revision: str) -> Iterable[Ask]:
            return [bgp_drain.change_drain(revision, release, on=on)]

        return await self._revisions.send(fill)

    async def read_wellness(self) -> Wellness:
        """Return health, BGP sessions, VNIs and ports with carrier."""
        health = bgp_drain.read_health(await self._line.get(bgp_drain.HEALTH_PATH))
        health = self._checked(health, bgp_drain.HEALTH_PATH)
        sessions = await self.read_sessions()
        vnis = bgp_drain.read_vnis(await self._line.get(bgp_drain.VNIS_PATH))
        vnis = self._checked(vnis, bgp_drain.VNIS_PATH)
        return Wellness(health, sessions, vnis, frozenset(await self.read_carriers()))

    async def read_sessions(self) -> frozenset[str]:
        """Return the established BGP neighbours of the default VRF."""
        path = bgp_drain.SESSIONS_PATH
        return self._checked(bgp_drain.read_sessions(await self._line.get(path)), path)

    async def read_health_report(self, limit_s: float, size_max_bytes: int) -> tuple[str, int, str]:
        """Return the health report as it is."""
        reply = await self._line.send(Ask("GET", HEALTH_PATH), limit_s, size_max_bytes)
        code = 0 if reply.status == 200 else reply.status
        return HEALTH_PATH, code, reply.body.decode("utf-8", errors="replace")

    async def read_carriers(self) -> tuple[str, ...]:
        """Return the front-panel ports with carrier."""
        path = nvue_calls.INTERFACES_PATH
        return self._checked(bgp_drain.read_ports(await self._line.get(path)), path)

    async def read_counters(self, interface: str) -> PortCounters:
        """Return the counters of one port."""
        answer = await self._line.find(bgp_drain.counters_path(interface))
        return bgp_drain.read_counters(answer)

    async def read_link(self, interface: str) -> LinkReading:
        """Return the optic and the queues of one port; an older NVUE has no such resources."""
        optic = await self._line.find(link_reading.optic_path(interface))
        cage = "" if optic else link_reading.cage_of(interface)
        if cage:
            optic = await self._line.find(link_reading.optic_path(cage))
        qos = await self._line.find(link_reading.queues_path(interface))
        watchdog = await self._line.find(link_reading.watchdog_path(interface))
        signal = await self._read_signal(interface) if optic else None
        return LinkReading(
            optic=link_reading.read_optic(optic, shared=bool(cage), signal=signal),
            queues=link_reading.read_queues(qos, watchdog),
        )

    async def _read_signal(self, interface: str) -> Any:
        """Return errors before FEC and SNR; None before 5.10 and on Spectrum-1, which lack them."""
        for page in self._signal_pages:
            with suppress(SwitchRefused):
                answer = await self._line.find(link_reading.signal_path(interface, page))
                if answer:
                    self._signal_pages = (page,)
                    return answer
        return None

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return the devices that one port hears by LLDP."""
        return await self._look.read_neighbours(interface)

    async def read_surroundings(self) -> Surroundings:
        """Return its host name, and who is heard at each port with carrier."""
        system = await self._line.get(LOGIN_PATH)
        name = system.get("hostname") if isinstance(system, dict) else None
        heard = await self._look.read_surroundings(await self.read_carriers())
        return Surroundings(name if isinstance(name, str) else "", heard)

    async def read_macs(self) -> Mapping[str, frozenset[str]]:
        """Return the MACs that were learned at each front-panel port."""
        return await self._look.read_macs()

    async def find_wrong_firmware(self, version: str) -> str:
        """Compare the ASIC's firmware with the published one of this image."""
        try:
            asic = bgp_drain.read_asic(await self._line.get(bgp_drain.FIRMWARE_PATH))
        except SwitchRefused:
            asic = None
        return bgp_drain.wrong_firmware(version, asic)

    async def read_state(self, interfaces: Sequence[str]) -> LeafState:
        """Return all that the release gate judges."""
        return await self._look.read(interfaces)

    async def read_tenant_routing(self, vrf: str, vni: str) -> TenantRouting:
        """Return a VNI's route targets (`bgp-info`) and the sessions of its VRF."""
        targets = await self._line.find(switch_state.targets_path(vni))
        sessions = await self._line.find(switch_state.peers_path(vrf))
        return TenantRouting(
            read_targets(targets), read_states({} if sessions is None else sessions)
        )

    # --- tenants' networks

    async def read_networks(self, vrfs: Collection[str]) -> NetworkState:
        """Return the configuration with VRFs, ports and the VNIs of `vrfs`."""
        return await self._networks.read(vrfs)

    async def apply_networks(self, change: NetworkChange) -> str:
        """Apply a change of tenants' networks as one revision."""
        return await self._networks.apply(change)

    # --- services

    async def read_services(self, source: str) -> SwitchServices:
        """Return time servers, syslog servers and logins of one tree."""
        return await self._services.read(source)

    async def apply_services(self, change: ServiceChange) -> str:
        """Apply a change of them as one revision."""
        return await self._services.apply(change)

    def _checked(self, value: T | None, path: str) -> T:
        if value is None:
            raise SwitchRefused(Reason.MALFORMED, f"{path}: not readable")
        return value
