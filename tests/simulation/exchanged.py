"""The technician of a simulated site, who puts in hardware that nobody has seen.

Other serials, factory passwords, the firmware that it was delivered with.
"""

from __future__ import annotations

from collections.abc import Mapping

from returned import HOST
from rig import World

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService, Exchanges
from provisioner.integrations.demo.site import ARTIFACTS
from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.redfish.bmc import from_files, make_service
from provisioner.integrations.sim.site.site import HOST_FACTORY_PASSWORD, Site
from provisioner.ports import Secret
from provisioner.store.repositories.cases import SqlCaseRepository

ANOTHER = 99  # the seed of what nobody has seen before


def delivered(site: Site, seed: int = ANOTHER) -> Machine:
    """A host as it comes from the factory."""
    machine = build_machine(HOST, site.schedule, seed)
    machine.bmcs["host"].password = HOST_FACTORY_PASSWORD
    return machine


def connect(
    world: World, machine: Machine, *names: str, files: Mapping[str, bytes] = ARTIFACTS
) -> None:
    """These BMCs answer at their cables from now on, with their factory accounts."""
    for name in names:
        url = world.site.urls[f"{HOST}/{name}"]
        world.services[url] = make_service(machine, name, world.clock, from_files(dict(files)))


def another_card(
    world: World, slot: str, files: Mapping[str, bytes] = ARTIFACTS, seed: int = ANOTHER
) -> str:
    """Another card in this slot, whose host was off for it; its serial."""
    machine, spare = world.site.machines[HOST], delivered(world.site, seed)
    machine.devices[slot].serial = spare.devices[slot].serial
    machine.bmcs[slot].serial = spare.bmcs[slot].serial
    for item in machine.list_items(slot):
        item.running, item.staged = spare.firmware[slot, item.id].running, None
    connect(world, machine, slot, files=files)
    machine.power_cycle(world.clock.now())
    return spare.devices[slot].serial


def another_gpu(world: World, slot: str) -> None:
    """Another GPU of the same kind in this slot."""
    device = world.site.machines[HOST].devices[slot]
    device.present, device.serial = True, "1650000000043"


def exchanges(world: World, book: SqlCaseRepository) -> Exchanges:
    """As the command line makes them, with the factory logins of the list."""
    known = world.site.build_expected()["factory_credentials"]

    async def factory(vendor: str) -> tuple[str, Secret] | None:
        login = known.get(vendor)
        return None if login is None else (login["username"], Secret(login["password"]))

    case_service = CaseService(Context(world.store, world.clock, world.settings), book, None)
    return Exchanges(world.store, case_service, world.vault, world.clock, factory)
