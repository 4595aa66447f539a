"""Named faults of switches (W of the catalogue)."""

from __future__ import annotations

from provisioner.sim.site.fault_preset import Preset, switch_fault
from provisioner.sim.site.site import Site


def _leak(site: Site, switch: str, part: str) -> None:
    """Leak routes of the first port into the maintenance VRF."""
    leaf = site.switches[switch]
    for name, entry in leaf.applied["interface"].items():
        for address in entry.get("ip", {}).get("address", {}):
            if not part or name == part:
                network, _, length = address.partition("/")
                head, _, last = network.rpartition(".")
                leaf.leaks[f"{head}.{int(last) & ~1}/{length}"] = "MAINT"


IN_SWITCHES = (
    switch_fault("apply_fails", "W1", "a revision ends as invalid, with an issue"),
    switch_fault("apply_hangs", "W2", "a revision never ends"),
    switch_fault("moves_ignored", "W3", "applied, but the ports stay where they are"),
    switch_fault("save_lost", "W4", "a saved configuration is not there after a reboot"),
    Preset("route_leak", "W5", "node prefixes show up in a second VRF", "switch", act=_leak),
    switch_fault("image_fetch_fails", "W6", "the image cannot be fetched"),
    switch_fault("image_install_fails", "W7", "the other partition is full"),
    switch_fault("boot_falls_back", "W8", "the old image boots again"),
    switch_fault("psu_failed", "W9", "a power supply has failed"),
    switch_fault("fan_missing", "W10", "a fan is missing"),
    switch_fault("leaf_drops", "W11", "a leaf drops packets: its rail is slow for all its nodes"),
)
