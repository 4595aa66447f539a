"""Read what a site shows before its first intake: hosts, cards and switches. Nothing is changed.

Each BMC gets one login with the factory credential of its vendor, each switch one with the login
that a person gave for the addresses that they named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish, host_interfaces
from provisioner.adapters.redfish.discovery import Probe
from provisioner.adapters.redfish.walk import Allowance
from provisioner.execution.actions.once import blocked
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.integrations.site_proposal.proposal import Seen, SeenHost, SeenSwitch
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Clock,
    PortError,
    Secret,
    SwitchAddress,
    Switches,
    SwitchRefused,
)
from provisioner.ports.switch import Switch
from provisioner.settings import Settings

HOSTS_AT_ONCE = 16  # each reading takes some hundred requests
SWITCHES_AT_ONCE = 16
REQUESTS_MAX = 4096
BYTES_MAX = 32 * 1024 * 1024
Progress = Callable[[int, int], None]


async def read_bmcs(
    transport: BmcTransport,
    probes: Sequence[Probe],
    factory: Mapping[str, tuple[str, Secret]],
    limit_s: float,
    progress: Progress,
) -> Seen:
    """Return the hosts that let us in with their parts, and why the others did not."""
    found, refused = await introduce_bmcs(transport, None, probes, factory)
    hosts = [f for f in found if f.endpoint.kind == "host"]
    places = asyncio.Semaphore(HOSTS_AT_ONCE)
    count = 0

    async def read(one: Found) -> SeenHost | Blocker:
        nonlocal count
        async with places:
            try:
                return await _read_host(transport, one, limit_s)
            except PortError as error:
                return blocked(error, one.endpoint.url)
            finally:
                count += 1
                progress(count, len(hosts))

    read_hosts = await asyncio.gather(*map(read, hosts))
    unread = [r for r in read_hosts if isinstance(r, Blocker)]
    waiting = [b.subject for b in refused if b.reason is Reason.PASSWORD_CHANGE]
    return Seen(
        hosts=tuple(r for r in read_hosts if isinstance(r, SeenHost)),
        cards=len(found) - len(hosts),
        waiting=tuple(waiting),
        refused=tuple(b for b in (*refused, *unread) if b.subject not in waiting),
        vendor_of={p.url: p.vendor for p in probes},
    )


async def _read_host(transport: BmcTransport, one: Found, limit_s: float) -> SeenHost:
    endpoint = one.endpoint
    address = BmcAddress(endpoint.url, one.username, one.secret, endpoint.pin)
    allowance = Allowance(limit_s, REQUESTS_MAX, BYTES_MAX)
    client = Redfish(transport, address, quirks.ALL[endpoint.vendor], allowance=allowance)
    inventory = await client.collect("", "host")
    try:
        macs = await host_interfaces(client.service)
    except PortError:
        macs = {}  # its cables are then found by name, or named as missing
    await transport.forget(address)
    return SeenHost(url=endpoint.url, vendor=client.quirk.name, inventory=inventory, macs=macs)


async def read_switches(
    transport: BmcTransport,
    switches: Switches,
    addresses: Sequence[SwitchAddress],
    clock: Clock,
    progress: Progress,
) -> tuple[SeenSwitch, ...]:
    """Return each switch as it showed itself, or why it did not."""
    places = asyncio.Semaphore(SWITCHES_AT_ONCE)
    count = 0

    async def read(address: SwitchAddress) -> SeenSwitch:
        nonlocal count
        async with places:
            try:
                return await _read_switch(transport, switches, address, clock)
            except PortError as error:
                return SeenSwitch(
                    address=address.url,
                    os=address.system,
                    username=address.username,
                    refusal=str(error),
                )
            finally:
                count += 1
                progress(count, len(addresses))

    return tuple(await asyncio.gather(*map(read, addresses)))


async def _read_switch(
    transport: BmcTransport, switches: Switches, address: SwitchAddress, clock: Clock
) -> SeenSwitch:
    facts = switches.get_facts(address.system, address.url)
    if facts is None or not facts.stored_login:
        raise SwitchRefused(Reason.PRECONDITION, "it is reached by the daemon's SSH key only")
    pinned = replace(address, pin=await transport.fingerprint(BmcAddress(address.url)))
    opened = switches.open(address.url, pinned, clock, Settings())
    login = await opened.check_login()
    if login.status != "accepted":
        raise SwitchRefused(Reason.LOGIN_REFUSED, f"its login was {login.status}: {login.detail}")
    platform = await opened.read_platform()
    around = await opened.read_surroundings()
    return SeenSwitch(
        address=address.url,
        os=address.system,
        username=address.username,
        hostname=around.hostname,
        serial=platform.serial or "",
        heard=around.heard,
        addresses=await _read_addresses(opened, sorted(p for p, h in around.heard.items() if h)),
    )


async def _read_addresses(opened: Switch, ports: Sequence[str]) -> dict[str, str]:
    """Return the one address of each port that has one; {} where the switch shows none."""
    try:
        state = await opened.read_state(ports)
    except PortError:
        return {}
    own = {name: port.addresses for name, port in state.ports.items()}
    return {name: next(iter(held)) for name, held in own.items() if len(held) == 1}
