"""Health checks of a node: one file per check, listed in `ALL`.

Each check names the commands that it needs and judges their raw outputs. Pure: outputs come in,
verdicts go out; nothing here reads a device.
"""

import functools
from collections.abc import Collection, Mapping, Sequence

from provisioner.checks import (
    attested_firmware,
    bfvcheck,
    bgp_peers,
    bmc_sensors,
    clocks,
    collected_reports,
    congestion,
    cpu_load,
    cpu_memory,
    dcgm_diag,
    devlink_health,
    disk_space,
    ecc,
    event_log,
    fabric_registration,
    fec_histogram,
    gdr_loopback,
    gpu_burn,
    gpu_inventory,
    gpu_processes,
    hbm,
    hgx_inventory,
    kernel_errors,
    kernel_log,
    link_flaps,
    lldp,
    memory_errors,
    mlxlink,
    nccl_single,
    nic_binding,
    nic_config,
    nic_inventory,
    nvbandwidth,
    nvlink,
    nvlink_errors,
    nvme_smart,
    optics,
    page_retirement,
    pcie_devices,
    pcie_errors,
    pcie_link,
    rail_routes,
    rdma_counters,
    rdma_links,
    roce_runtime,
    roce_transport,
    row_remap,
    secure_boot,
    services,
    sram_ecc,
    storage_load,
    switch_health,
    temperatures,
    topology,
    versions,
)
from provisioner.checks.check import Check
from provisioner.checks.driver_verdicts import read_driver_verdicts
from provisioner.checks.fabric import (
    dcgm_mndiag,
    fabric_checks,
    nccl_collectives,
    nccl_path,
    training_step,
)
from provisioner.model.cohort import Gate
from provisioner.model.node import NodeKind
from provisioner.model.shipped_tables import read_table

_LISTED: tuple[Check, ...] = (
    gpu_inventory.CHECK,
    versions.CHECK,
    cpu_memory.CHECK,
    topology.CHECK,
    pcie_link.CHECK,
    pcie_devices.CHECK,
    nic_inventory.CHECK,
    nic_config.CHECK,
    roce_runtime.CHECK,
    bfvcheck.CHECK,
    services.CHECK,
    hgx_inventory.CHECK,
    attested_firmware.CHECK,
    secure_boot.CHECK,
    collected_reports.CHECK_GPUS,
    collected_reports.CHECK_NVSWITCHES,
    fabric_registration.CHECK,
    gpu_processes.CHECK,
    lldp.CHECK,
    ecc.CHECK,
    sram_ecc.CHECK,
    row_remap.CHECK,
    page_retirement.CHECK,
    kernel_log.CHECK,
    nvlink.CHECK,
    nvlink_errors.CHECK,
    clocks.CHECK,
    temperatures.CHECK,
    bmc_sensors.CHECK,
    pcie_errors.CHECK,
    memory_errors.CHECK,
    event_log.CHECK,
    kernel_errors.CHECK,
    nvme_smart.CHECK,
    disk_space.CHECK,
    rail_routes.CHECK,
    rdma_links.CHECK,
    nic_binding.CHECK,
    mlxlink.CHECK,
    fec_histogram.CHECK,
    optics.CHECK,
    link_flaps.CHECK,
    rdma_counters.CHECK,
    roce_transport.CHECK,
    congestion.CHECK,
    devlink_health.CHECK,
    bgp_peers.CHECK,
    dcgm_diag.CHECK,
    nvbandwidth.CHECK,
    nccl_single.CHECK,
    gdr_loopback.CHECK,
    hbm.CHECK,
    gpu_burn.CHECK,
    dcgm_diag.CHECK_SOFTWARE,
    *fabric_checks.ALL,
    nccl_path.CHECK,
    training_step.CHECK,
    dcgm_mndiag.CHECK,
    dcgm_diag.CHECK_LONG,
    dcgm_diag.CHECK_XLONG,
    gpu_burn.CHECK_LONG,
    nccl_collectives.CHECK,
    storage_load.CHECK,
    cpu_load.CHECK,
    cpu_load.CHECK_STREAM,
    switch_health.CHECK,
)

# In the order in which the checks run and are shown. Whoever reads an output of nvidia-smi also
# reads the driver's own verdicts in it.
ALL: tuple[Check, ...] = tuple(read_driver_verdicts(check) for check in _LISTED)


# Gates that every validation passes. Fabric tests (C) need partners and long burns (D) take hours,
# so they run only on request.
PLAIN = frozenset({Gate.A, Gate.B})


def list_standard_checks(kind: NodeKind) -> frozenset[str]:
    mine = (check for check in ALL if check.kind is kind and check.gate in PLAIN)
    return frozenset(check.name for check in mine if not check.on_request)


def list_required_results(
    kind: NodeKind, selected: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the names of all results that a node's report must have, in the order of the run.

    `selected` names the requested checks; None selects those of every validation. After every load
    test, the checks marked `after_load` are judged again, and each gives a further result.
    """
    names = list_standard_checks(kind) if selected is None else selected
    mine = [check for check in ALL if check.kind is kind and check.name in names]
    return list_results(mine)


def list_results(mine: Sequence[Check]) -> tuple[str, ...]:
    """Return the names of all results that a run of these checks gives."""
    names = [check.name for check in mine if not check.load]
    for load in (check for check in mine if check.load):
        names += [
            load.name,
            *(name_result_after_load(c.name, load.name) for c in mine if c.after_load),
        ]
    return tuple(names)


def name_result_after_load(check: str, load: str) -> str:
    """Return the name of the result of a check that is judged again after a load test."""
    return f"{check} after {load}"


@functools.cache
def read_passes_when() -> Mapping[str, str]:
    """Return for each check, in the order of `ALL`, when it passes (`passes_when.csv`)."""
    return {row["check"]: row["passes_when"] for row in read_table(__name__, "passes_when.csv")}
