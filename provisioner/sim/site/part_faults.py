"""Named faults of parts and hosts, visible in-band (H of the catalogue)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from provisioner.sim.site.fault_preset import Preset, machine_fault, part_fault
from provisioner.sim.site.site import Site


def _swap_cables(site: Site, node: str, _part: str) -> None:
    """Swap the cables of rails 0 and 1 between their leaves."""
    view = site.hosts[node]
    first, second, *rest = view.cables
    view.cables = (
        replace(first, switch=second.switch, interface=second.interface),
        replace(second, switch=first.switch, interface=first.interface),
        *rest,
    )
    for cable in view.cables[:2]:
        old = cable.switch.neighbours[cable.interface]
        card = site.machines[node].devices[cable.nic_slot]
        cable.switch.neighbours[cable.interface] = replace(old, mac=card.mac)


def _implant_firmware(site: Site, node: str, part: str) -> None:
    """Let a GPU run firmware that is not its maker's, under the version that it shows."""
    machine = site.machines[node]
    machine.implants.add(machine.devices[part or "GPU_SXM_5"].slot)


def _silence_root(site: Site, node: str, part: str) -> None:
    """Let a BMC leave a root of trust out of those that attest."""
    roots = {name: name for bmc, name in site.machines[node].copies if bmc == "host"}
    site.machines[node].silent_roots.add(roots[part or "HGX_ERoT_FPGA_0"])


def _leak(state: str | None) -> Callable[[Site, str, str], None]:
    """Give a host the four detectors of a tray, one of which is in `state`."""

    def act(site: Site, node: str, part: str) -> None:
        machine = site.machines[node]
        machine.leak_detectors = dict.fromkeys(LEAK_DETECTORS, "OK")
        machine.leak_detectors[part or LEAK_DETECTORS[-1]] = state

    return act


# source: LambdaLabs/redfish_exporter, collector/leak_detector_test.go (a tray of a GB200)
LEAK_DETECTORS = (
    "Chassis_0_LeakDetector_0_ColdPlate",
    "Chassis_0_LeakDetector_0_Manifold",
    "Chassis_0_LeakDetector_1_ColdPlate",
    "Chassis_0_LeakDetector_1_Manifold",
)

IN_PARTS = (
    part_fault("dead_gpu", "H1", "a GPU is not there: seven of eight", "GPU_SXM_5", present=False),
    part_fault("pcie_gen4", "H2", "a GPU's link trained down to Gen4", "GPU_SXM_3", link_gen=4),
    part_fault(
        "pcie_narrow", "H3", "a GPU's link has eight lanes of sixteen", "GPU_SXM_7", link_width=8
    ),
    machine_fault("gpu_fell_off", "H4", "a GPU has fallen off the bus"),
    part_fault("xid_79", "H4", "the log has Xid 79", "GPU_SXM_1", xids="79"),
    part_fault(
        "xid_48", "H5", "a double-bit error: Xid 48", "GPU_SXM_2", xids="48", ecc_uncorrected=1
    ),
    part_fault(
        "remap_failure",
        "H6",
        "row remapping failed: return the part",
        "GPU_SXM_6",
        remap_failure=1,
        remap_uncorrectable=8,
    ),
    part_fault(
        "remap_pending",
        "H7",
        "a row waits for a GPU reset to be remapped",
        "GPU_SXM_6",
        remap_pending=1,
    ),
    part_fault("ecc_off", "H8", "ECC is disabled", "GPU_SXM_4", ecc_mode="Disabled"),
    part_fault(
        "nvlink_down", "H9", "two NVLinks of a GPU are inactive", "GPU_SXM_8", nvlinks_down=2
    ),
    part_fault("sxid_fatal", "H10", "an NVSwitch reports a fatal SXid", "NVSwitch_1", sxid="20034"),
    part_fault(
        "slow_host_link",
        "H11",
        "a GPU copies at half the bandwidth",
        "GPU_SXM_2",
        host_gpu_gb_s=27.0,
    ),
    machine_fault("fabric_manager_down", "H12", "Fabric Manager does not run"),
    machine_fault("persistence_off", "H13", "persistence mode is off: DCGM fails every GPU"),
    machine_fault("dcgm_skips_memory", "H14", "DCGM skips a plugin, which is no pass"),
    machine_fault("nccl_slow", "H15", "the all-reduce is below its floor"),
    machine_fault("nccl_corrupts", "H16", "the all-reduce gives wrong values"),
    part_fault("rail_down", "H17", "a rail has no carrier", "NIC_3", link_down=1),
    part_fault("rail_slow", "H18", "a rail runs at 200 Gb/s", "NIC_4", rate="200 Gb/sec (2X NDR)"),
    Preset(
        "cables_swapped",
        "H19",
        "two rails are plugged into each other's leaf",
        "node",
        act=_swap_cables,
    ),
    part_fault("nic_gen4", "H20", "a SuperNIC's link is limited to Gen4", "NIC_6", link_gen=4),
    part_fault("dpu_locked", "H21", "a DPU does not open for the host", "DPU_1", locked=1),
    machine_fault("package_install_fails", "H22", "dpkg ends with an error"),
    machine_fault("nic_burn_fails", "H23", "a card rejects the image"),
    machine_fault("tools_hang", "H24", "long commands never end"),
    machine_fault("inband_unreachable", "H25", "the host does not answer SSH"),
    machine_fault("nvml_mismatch", "H26", "nvidia-smi fails between driver and reboot"),
    Preset("coolant_leak", "H34", "a leak detector is wet", "node", act=_leak("LeakDetected")),
    Preset(
        "leak_detector_silent", "H35", "a leak detector reports no state", "node", act=_leak(None)
    ),
    Preset("coolant_dry", "H36", "all leak detectors are dry", "node", act=_leak("OK")),
    Preset(
        "firmware_implanted",
        "H39",
        "a GPU runs firmware that is not its maker's, under the same version",
        "node",
        act=_implant_firmware,
    ),
    Preset(
        "root_silent",
        "H40",
        "a root of trust is left out of those that attest",
        "node",
        act=_silence_root,
    ),
    machine_fault("runtime_is_forgotten", "H27", "run-time settings of the NICs do not stay"),
    machine_fault("tenant_login_fails", "H38", "the tenant's account opens with other keys"),
    machine_fault("login_stays", "H38", "a key of the daemon stays in the host at the handover"),
    machine_fault("old_driver_starts", "H37", "each boot loads the driver of before an update"),
)
