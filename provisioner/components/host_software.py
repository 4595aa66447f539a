"""Software in the host's operating system, read and installed in-band; no BMC lists it."""

from __future__ import annotations

from provisioner.components.kind import ComponentKind
from provisioner.model.inventory import Activation
from provisioner.model.plan import Disruption

_METHOD = "playbook_host_software"

KINDS = (
    ComponentKind(
        name="host.kernel",  # "6.8.0-57-generic=6.8.0-57.59": what runs, and its package
        title="kernel",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,
        disruption=Disruption.HOST,
        duration_s=300,
    ),
    ComponentKind(
        name="host.driver",
        title="GPU driver",
        grammar="driver",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,
        disruption=Disruption.HOST,
        duration_s=600,
    ),
    ComponentKind(
        name="host.driver_packages",  # "ubuntu-server-open": whose, and with open modules or not
        title="packaging of the GPU driver",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,
        disruption=Disruption.HOST,
        duration_s=600,
    ),
    ComponentKind(
        name="host.fabric_manager",
        title="Fabric Manager",
        grammar="driver",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,  # it loads only with a driver of the same version
        duration_s=120,
    ),
    ComponentKind(
        name="host.doca",
        title="DOCA-Host",
        grammar="doca",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,
        disruption=Disruption.NIC,
        duration_s=600,
    ),
    ComponentKind(
        name="host.doca_ofed",  # "doca-ofed=2.10.0-0.5.3": the stack, whose repository host.doca is
        title="DOCA profile",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,
        disruption=Disruption.NIC,
        duration_s=600,
    ),
    ComponentKind(
        name="host.spcx_cc",
        title="Spectrum-X congestion control",
        grammar="doca",
        method=_METHOD,
        activation=Activation.SERVICE_RESTART,
        duration_s=120,
    ),
    ComponentKind(
        name="host.nvlsm",  # NVLink 5 platforms only; which versions match is unpublished
        title="NVLink subnet manager",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,
        duration_s=120,
    ),
    ComponentKind(
        name="host.nccl", title="NCCL", method=_METHOD, activation=Activation.NONE, duration_s=120
    ),
    ComponentKind(
        name="host.storage_client",
        title="storage client",
        method=_METHOD,
        activation=Activation.WARM_REBOOT,  # it brings kernel modules
        duration_s=300,
    ),
)
