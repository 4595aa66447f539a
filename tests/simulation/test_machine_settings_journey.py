"""Settings of BIOS and BMC in a host's journey: pinned, written, booted, proved, drifting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World

from provisioner.execution.observe.collector import Collector
from provisioner.model.node import NodeKind, State
from provisioner.model.operation import ActionStatus, LedgerEntry

HOUR_S = 3600.0
EVIDENCE = "a test's own choice"
KEY = "a-key-of-the-site"
SETS = {
    "bios-1": {"iommu": "on", "relaxed_ordering": "on", "secure_boot": "on"},
    "bmc-1": {"ipmi": "off"},
    "card-1": {"ssh": "off", "host_rshim": "off"},
    "dpu-1": {"card_mode": "dpu", "host_privilege": "unrestricted"},
}
RESETS = ("warm_reboot", "cold_boot", "ac_cycle")
PINS = {
    "host.bios_settings": "bios-1",
    "host.bmc_settings": "bmc-1",
    "card.bmc_settings": "card-1",
    "bluefield.settings": "dpu-1",
}
ENDS_BY = {"host.bios_settings": "warm_reboot", "bluefield.settings": "cold_boot"}


def pin_sets(overlay: Path) -> None:
    """Pin both kinds in the profile of the site's hosts."""
    document: dict[str, Any] = json.loads(overlay.read_text())
    pins = document["releases"]["spectrum-x-1.3.0"]["profiles"]["hgx-h100-bf3"]["pins"]
    for kind, name in PINS.items():
        pins[kind] = {"version": name, "evidence": EVIDENCE}
        ends_by = ENDS_BY.get(kind, "none")
        document["edges"][kind] = [
            {"from": ["*"], "to": name, "activates_by": ends_by, "evidence": EVIDENCE}
        ]
    document["machine_settings"] = SETS
    overlay.write_text(json.dumps(document))


async def lived(folder: Path) -> dict[str, Any]:
    world = World(folder, nodes=1, seed=11)
    pin_sets(world.files.overlay)
    await world.take_in()
    await world.start()
    entries: list[LedgerEntry] = []
    for _ in range(90):
        await world.clock.sleep(HOUR_S / 6)
        (host,) = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
        entries = await world.store.operations.list_entries(host.id)
        machine = world.site.machines[host.id]
        booted = [e for e in entries if e.action.startswith(RESETS)]
        ended = [e for e in booted if e.status is ActionStatus.CONFIRMED]
        if ended or host.state is State.QUARANTINED:
            break
    mine = [e for e in entries if e.action.startswith(tuple(PINS))]
    daemon = world.daemon
    assert daemon is not None
    collector = Collector(daemon.site, {})
    read = []
    for change in ({}, {"IntelVTforDirectedI_O_VT_d__1E32": "Disable"}):
        machine.host.bios.running.update(change)
        inventory, unseen = await collector.collect(host)
        assert inventory is not None, unseen
        slots = ("host", "host", "DPU_0", "DPU_0")
        components = [
            inventory.find_component(kind, slot) for kind, slot in zip(PINS, slots, strict=True)
        ]
        read.append([None if c is None else c.version for c in components])
    await world.crash()
    return {
        "read": read,
        "names": sorted(machine.bluefields),
        "privileges": {(name[:3], card.privilege) for name, card in machine.bluefields.items()},
        "cards": {
            (card.host_rshim, machine.bmcs[name].protocols["SSH"])
            for name, card in machine.bluefields.items()
        },
        "written": [e.action for e in mine if e.status is ActionStatus.CONFIRMED],
        "boots": [e.action for e in booted],
    }


@pytest.mark.long
def test_the_daemon_writes_both_boots_once_and_sees_what_drifts(tmp_path: Path) -> None:
    ended = virtual_time.run(lived(tmp_path))

    of_cards = [name for name in ended["written"] if name.startswith("card.")]
    assert sorted(of_cards) == [f"card.bmc_settings card-1 {name}" for name in ended["names"]]
    of_dpus = sorted(name for name in ended["written"] if name.startswith("bluefield."))
    assert of_dpus == [
        f"bluefield.settings dpu-1 {name}" for name in ended["names"] if name.startswith("DPU")
    ]
    assert ended["privileges"] == {("DPU", "Privileged"), ("NIC", "Restricted")}
    assert sorted({*ended["written"]} - {*of_cards, *of_dpus}) == [
        "host.bios_settings bios-1",
        "host.bmc_settings bmc-1",
    ]
    assert ended["read"] == [
        ["bios-1", "bmc-1", "card-1", "dpu-1"],
        ["none", "bmc-1", "card-1", "dpu-1"],
    ]
    assert ended["cards"] == {("Disabled", False)}
    assert ended["boots"] == ["ac_cycle su0-n00"], "settings share the reset of the firmware"


def pin_switches(overlay: Path) -> None:
    """Pin a set in the profile of the site's switches."""
    document: dict[str, Any] = json.loads(overlay.read_text())
    profile = document["releases"]["spectrum-x-1.3.0"]["profiles"]["sn5600"]
    profile["pins"]["switch.settings"] = {"version": "switch-1", "evidence": EVIDENCE}
    document["edges"]["switch.settings"] = [
        {"from": ["*"], "to": "switch-1", "activates_by": "none", "evidence": EVIDENCE}
    ]
    document["machine_settings"] = {"switch-1": {"ntp": "10.0.0.1", "tacacs": "10.0.0.4"}}
    overlay.write_text(json.dumps(document))


async def lived_with_switches(folder: Path) -> dict[str, Any]:
    key = folder / "tacacs"
    key.write_text(KEY)
    settings: dict[str, Any] = {"switch_tacacs_key_file": str(key)}
    world = World(folder, nodes=1, seed=12, **settings)
    pin_switches(world.files.overlay)
    await world.take_in()
    await world.start()
    switch = world.site.switches["leaf-su0-r0"]
    for _ in range(90):
        await world.clock.sleep(HOUR_S / 6)
        if "10.0.0.4" in str(switch.startup):
            break
    entries = await world.store.operations.list_entries(switch.name)
    journal = await world.store.journal.list(limit=10_000)
    logged = f"{journal}{entries}{switch.log}"
    await world.crash()
    return {
        "written": [e.action for e in entries if e.action.startswith("switch.settings")],
        "ntp": "10.0.0.1" in str(switch.startup),
        "shown": KEY in logged,
    }


@pytest.mark.long
def test_the_daemon_writes_the_settings_of_switches_without_a_reboot_of_theirs(
    tmp_path: Path,
) -> None:
    ended = virtual_time.run(lived_with_switches(tmp_path))

    assert ended == {"written": ["switch.settings switch-1"], "ntp": True, "shown": False}
