"""Coverage and duration of each test, and the domains of each component and device. Pure data.

Checks of gate A are not here: they take seconds and always run. A kind without a row concerns every
domain, so that a forgotten row costs time and hides no fault.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record


class Domain(StrEnum):
    """A domain of a node that can wear, be exchanged or be updated by itself."""

    GPU = "gpu"  # compute and HBM
    NVLINK = "nvlink"
    PCIE = "pcie"
    NIC = "nic"
    FABRIC = "fabric"  # faults that appear only between nodes
    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"
    POWER = "power"  # supplies, cooling
    SOFTWARE = "software"


EVERYTHING = frozenset(Domain)
_G = Domain.GPU
_V = Domain.NVLINK
_P = Domain.PCIE
_N = Domain.NIC
_F = Domain.FABRIC
_C = Domain.CPU
_M = Domain.MEMORY
_D = Domain.DISK
_W = Domain.POWER
_S = Domain.SOFTWARE


class Coverage(Record):
    """The domains that a test covers. `seconds`: typical wall time on one node, from the
    vendors' and clouds' documents.
    """

    domains: frozenset[Domain]
    seconds: float


def _of(seconds: float, *domains: Domain) -> Coverage:
    return Coverage(domains=frozenset(domains), seconds=seconds)


TESTS: dict[str, Coverage] = {
    "dcgm_diag": _of(630, _G, _P, _S),  # level 2: 2.5 to 10.5 minutes (AWS)
    "nvbandwidth": _of(180, _P, _V, _G),
    "nccl_single": _of(60, _V, _G, _S),
    "gdr_loopback": _of(240, _N, _P),  # 8 times 10 to 30 s
    "hbm": _of(120, _G),
    "gpu_burn": _of(120, _G, _W),
    "dcgm_long": _of(1800, _G, _V, _W),  # level 3: 15 to 30 minutes
    "dcgm_xlong": _of(8100, _G, _V, _W),  # level 4: 1 to 2.25 hours
    "gpu_burn_long": _of(900, _G, _W),  # SuperBench: 900 s
    "nccl_collectives": _of(180, _V, _G),
    "storage_load": _of(360, _D),  # fio: 6 minutes, drives side by side
    "cpu_stress": _of(120, _C, _M, _W),
    "cpu_stream": _of(60, _M),
}
GATE_A_S = 60.0  # all of gate A
AFTER_LOAD_S = 15.0  # checks after each load test, for faults that load causes
FABRIC_S = 600.0  # gate C: about ten minutes with its partners

# Component kinds by prefix; the longest matching prefix counts.
COMPONENTS: dict[str, frozenset[Domain]] = {
    "hgx.": frozenset({_G, _V, _P}),
    "hgx.nvswitch": frozenset({_V}),
    "hgx.retimer": frozenset({_P, _N}),
    "hgx.pcieswitch": frozenset({_P, _N}),
    "hgx.cpu": frozenset({_C, _M}),
    "bluefield.": frozenset({_N, _F}),
    "supernic.": frozenset({_N, _F}),
    "nic.": frozenset({_N, _F}),
    "host.bios": frozenset({_C, _M, _P}),
    "host.bmc": frozenset({_W}),
    "host.psu": frozenset({_W}),
    "host.power": frozenset({_W}),
    "host.cpld": frozenset({_W, _P}),
    "host.driver": frozenset({_G, _V, _S}),
    "host.fabric_manager": frozenset({_V, _S}),
    "host.nccl": frozenset({_V, _F, _S}),
    "host.doca": frozenset({_N, _F}),
    "host.spcx_cc": frozenset({_N, _F}),
    "host.storage_client": frozenset({_D, _S}),
    "host.nvme": frozenset({_D}),
    "drive.": frozenset({_D}),
    "host.raid": frozenset({_D}),
    "host.gpu": frozenset({_G, _V, _P}),
    "host.nvswitch": frozenset({_V}),
    "host.retimer": frozenset({_P, _N}),
    "host.pcieswitch": frozenset({_P, _N}),
    "host.tpm": frozenset({_S}),
    "host.tools": frozenset({_S}),
}

# Kinds of devices as the inventory names them.
DEVICES: dict[str, frozenset[Domain]] = {
    "gpu": frozenset({_G, _V, _P, _W}),
    "nvswitch": frozenset({_V}),
    "nic": frozenset({_N, _F, _P}),
    "dpu": frozenset({_N, _F, _P}),
    "cpu": frozenset({_C, _M}),
    "memory": frozenset({_M, _C}),
    "storage": frozenset({_D}),
    "bmc": frozenset({_W}),
    "psu": frozenset({_W}),
}


def domains_of_component(kind: str) -> frozenset[Domain]:
    """Return the domains that a component kind concerns; all of them if no row matches."""
    fitting = [prefix for prefix in COMPONENTS if kind.startswith(prefix)]
    return COMPONENTS[max(fitting, key=len)] if fitting else EVERYTHING


def domains_of_device(kind: str) -> frozenset[Domain]:
    """Return the domains that a device concerns; all of them if no row matches."""
    return DEVICES.get(kind, EVERYTHING)
